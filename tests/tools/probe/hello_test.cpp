#include "testing.hpp"

#include "npu_train/tools/probe/hello.hpp"

#include <cmath>

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;

TEST_CASE("products on the CPU are right in every dtype, and the same each time") {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    const auto result = hello_matmul(Device{}, dtype, 200, 2);
    CHECK(result.finite);
    CHECK(result.relative_error <= hello_tolerance(dtype));
    CHECK(result.norm == doctest::Approx(std::sqrt(200.0 * 200 * 200 / 9)).epsilon(0.02));  // for uniform numbers in [-1, 1)
    CHECK(result.milliseconds > 0);
    CHECK(hello_matmul(Device{}, dtype, 200, 1).norm == result.norm);
    CHECK((judge_matmul(Device{}, dtype, result).verdict == Verdict::Ok));
  }
  CHECK(hello_matmul(Device{}, at::kBFloat16, 200, 1).relative_error > 1e-4);  // rounding is visible
}

TEST_CASE("a wrong product fails: too far, not finite, TF32") {
  const Device npu{"npu", 1}, cuda{"cuda", 0};
  const MatmulResult good{.milliseconds = 1, .norm = 100, .relative_error = 9e-5, .finite = true};
  CHECK((judge_matmul(npu, at::kFloat, good).verdict == Verdict::Ok));
  auto bad = good;
  bad.relative_error = 2e-4;
  CHECK((judge_matmul(npu, at::kFloat, bad).verdict == Verdict::Fail));
  CHECK((judge_matmul(npu, at::kHalf, bad).verdict == Verdict::Ok));
  CHECK(has(judge_matmul(cuda, at::kFloat, bad).fix, "TF32"));
  CHECK(!has(judge_matmul(npu, at::kFloat, bad).fix, "TF32"));
  bad.relative_error = std::nan("");
  CHECK((judge_matmul(npu, at::kFloat, bad).verdict == Verdict::Fail));
  bad = good;
  bad.finite = false;
  CHECK(has(judge_matmul(npu, at::kFloat, bad).finding, "not finite"));
  CHECK((judge_matmul(npu, at::kFloat, bad).verdict == Verdict::Fail));
  CHECK(judge_matmul(npu, at::kBFloat16, good).name == "npu:1 bf16");
}

TEST_CASE("a device that vanishes is a finding, and the others continue") {
  int steps = 0;
  HelloOptions options{.size = 50, .precisions = {"32-true", "bf16-mixed"}};
  options.step = [&](const Device& device, const std::string& precision) -> Finding {
    ++steps;
    if (precision == "32-true") throw Error(ErrorKind::Device, "cpu", "error code is 507901");
    if (steps == 2) throw std::runtime_error("something else");
    return {"", device.str() + " step " + precision, Verdict::Ok, "fine", "here"};
  };
  const auto findings = check_hello({Device{"cuda", 99}, Device{}}, options);
  CHECK(findings.size() == 2 * (3 + 2));
  // this GPU does not exist, so each of its computations fails with a message
  CHECK((findings[0].verdict == Verdict::Fail));
  CHECK(!findings[0].evidence.empty());
  for (size_t i = 5; i < 8; ++i) CHECK((findings[i].verdict == Verdict::Ok));
  CHECK((findings[8].verdict == Verdict::Fail));
  CHECK(has(findings[8].finding, "disappeared"));
  CHECK(has(findings[8].evidence, "507901"));
  for (const auto& f : findings) CHECK(f.area == "hello");
}

TEST_CASE("an exception of libtorch in a step is a finding too") {
  HelloOptions options{.size = 10, .precisions = {"a", "b"}};
  options.step = [](const Device&, const std::string& precision) -> Finding {
    if (precision == "a") throw std::bad_alloc();
    throw std::runtime_error("kernel failed");
  };
  const auto findings = check_hello({Device{}}, options);
  CHECK(has(findings[3].finding, "no memory left"));
  CHECK(has(findings[4].evidence, "kernel failed"));
}

TEST_CASE("devices of this machine include the CPU, never the simulated NPU") {
  std::vector<Finding> problems;
  const auto devices = usable_devices(problems);
  REQUIRE(!devices.empty());
  CHECK(devices.back() == Device{});
  for (const auto& device : devices) CHECK(device.kind != "sim_npu");
  CHECK((error_of([] { hello_matmul(Device{}, at::kFloat, 0, 1); }).kind() == ErrorKind::Usage));
}
