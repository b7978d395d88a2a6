#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/nn/modules.h>

#include <functional>

#include "npu_train/base/batch.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/device/sim_npu.hpp"
#include "npu_train/tools/analyze/try_device.hpp"
#include "npu_train/train/classifier.hpp"

using namespace npu_train;
using npu_train::testing::error_of, npu_train::testing::has;

namespace {

// A network that computes something else on a device.
struct Elsewhere : torch::nn::Module {
  using Twist = std::function<at::Tensor(const at::Tensor&)>;
  explicit Elsewhere(Twist on_device, int64_t width = 8)
      : twist(std::move(on_device)),
        body(register_module("body", torch::nn::Linear(4, width))),
        head(register_module("head", torch::nn::Linear(width, 3))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = at::relu(body(x));
    return head(y.is_cpu() || !twist ? y : twist(y));
  }
  Twist twist;
  torch::nn::Linear body, head;
};

TrialReport tried(Elsewhere::Twist twist, const std::string& device = "sim_npu", int64_t width = 8) {
  start_sim_npu({.hbm = "4MiB", .unsupported_ops = "error"});
  at::manual_seed(1);
  auto net = std::make_shared<Elsewhere>(std::move(twist), width);
  const at::Tensor before = net->body->weight.detach().clone();
  const Batch batch(at::randn({4, 4}), at::zeros({4}, at::kLong));
  auto report = try_device(*classifier(net), batch, device);
  CHECK(net->body->weight.is_cpu());
  CHECK(at::equal(net->body->weight, before));
  CHECK_FALSE(net->body->weight.grad().defined());
  return report;
}

const Trial& trial(const TrialReport& report, const std::string& name) {
  for (const auto& t : report.trials)
    if (t.name == name) return t;
  FAIL("no trial " << name);
  return report.trials.front();
}

void fails(const TrialReport& report, const std::string& name, const std::string& kind, const std::string& place) {
  CAPTURE(to_text(report));
  CHECK(report.failure == kind);
  CHECK((trial(report, name).verdict == Trial::Verdict::Failed));
  CHECK(has(report.place, place));
  CHECK_FALSE(report.remedy.empty());
  bool behind = false;
  for (const auto& t : report.trials) {
    if (behind) CHECK((t.verdict == Trial::Verdict::NotReached));
    behind |= t.name == name;
  }
}

}  // namespace

TEST_CASE("a plain model passes every trial") {
  const auto report = tried({});
  CAPTURE(to_text(report));
  CHECK(report.passed());
  for (const auto& t : report.trials) CHECK((t.verdict == (t.name == "speed" ? Trial::Verdict::NotJudged : Trial::Verdict::Passed)));
  CHECK(report.max_error == 0);  // the simulator computes on the host
  CHECK(report.speed_up == -1);  // the same processor: only noise
  CHECK(has(trial(report, "speed").detail, "computes on this CPU"));
  CHECK(has(trial(report, "training").detail, "(in fp32, with SGD)"));
  CHECK(has(to_text(report), "the model runs and trains"));
  CHECK(to_json(report).at("trials", "t").items("t").size() == report.trials.size());
}

TEST_CASE("each kind of failure is reported with its place and a remedy") {
  fails(tried([](const at::Tensor& y) { return y + at::_linalg_eigvals(y.matmul(y.t())).sum().to(at::kFloat); }), "forward", "operator",
        "eig");
  fails(tried([](const at::Tensor& y) { return y.to(at::kDouble).mul(2).to(at::kFloat); }), "forward", "dtype", "in forward");
  fails(tried([](const at::Tensor& y) { return y.view({-1, 7}); }), "forward", "shape", "view");
  fails(tried({}, "sim_npu", 1 << 18), "moved", "out_of_memory", "in moved");
  fails(tried({}, "npu"), "loaded", "environment", "in loaded");
  fails(tried([](const at::Tensor& y) { return y * 1.01; }), "outputs", "numbers", "outputs of the model");
  fails(tried([](const at::Tensor& y) { return y / at::zeros_like(y); }), "loss", "numbers", "in loss");
  fails(tried([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no such weather"); }), "forward", "model", "body");
}

TEST_CASE("a device that vanishes is the environment's failure, an operator that fails on the chip is not") {
  const auto failing = [](const char* code) {
    return tried([code](const at::Tensor&) -> at::Tensor {
      TORCH_CHECK(false, "npuSynchronizeDevice:NPUStream.cpp:512 NPU function error: AclrtSynchronizeDeviceWithTimeout, error code is ",
                  code, "\n[ERROR] ERR00100 PTA call acl api failed");
    });
  };
  fails(failing("507901"), "forward", "environment", "in forward");
  CHECK(has(failing("507901").remedy, "--explain"));
  fails(failing("507015"), "forward", "operator", "in forward");
}

TEST_CASE("what stays behind, comes back to the host or learns nothing is seen without an exception") {
  struct Forgetful : Elsewhere {
    using Elsewhere::Elsewhere;
    void to(c10::Device device, bool non_blocking) override {
      body->to(device, non_blocking);  // leaves the head on the host
    }
  };
  start_sim_npu({.hbm = "4MiB", .unsupported_ops = "error"});
  const Batch batch(at::randn({4, 4}), at::zeros({4}, at::kLong));
  fails(try_device(*classifier(std::make_shared<Forgetful>(nullptr)), batch, "sim_npu"), "moved", "model", "in moved");
  const auto back = tried([](const at::Tensor& y) { return y.cpu().mul(1).to(y.device()); });
  CAPTURE(to_text(back));
  CHECK((trial(back, "forward").verdict == Trial::Verdict::Note));
  CHECK(has(trial(back, "forward").detail, "copied back to the host 1 time, after body"));
  CHECK(back.passed());
  fails(tried([](const at::Tensor& y) { return y.detach(); }), "backward", "numbers", "in backward");
}

TEST_CASE("an error of the device has its message, and a judgement has none") {
  const auto thrown = tried([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no such weather"); });
  CHECK(has(trial(thrown, "forward").error, "no such weather"));
  CHECK(has(to_text(thrown), "message: "));
  const auto judged = tried([](const at::Tensor& y) { return y * 1.01; });
  CHECK(trial(judged, "outputs").error.empty());
  CHECK_FALSE(has(to_text(judged), "message: "));
}

TEST_CASE("an error of a few roundings passes, with a note where it is unusual") {
  CHECK((trial(tried([](const at::Tensor& y) { return y * (1 + 2e-5); }), "outputs").verdict == Trial::Verdict::Passed));
  const auto report = tried([](const at::Tensor& y) { return y * (1 + 9e-4); });
  CAPTURE(to_text(report));
  CHECK((trial(report, "outputs").verdict == Trial::Verdict::Note));
  CHECK(report.passed());
}

TEST_CASE("a model that fails on the CPU itself, and a name that is no device, are errors") {
  struct Broken : torch::nn::Module {
    torch::nn::Linear head{register_module("head", torch::nn::Linear(4, 3))};
    at::Tensor forward(const at::Tensor&) { throw std::runtime_error("no such weather"); }
  };
  const Batch batch(at::randn({4, 4}), at::zeros({4}, at::kLong));
  const auto error = error_of([&] { try_device(*classifier(std::make_shared<Broken>()), batch, "sim_npu"); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(has(error.what(), "does not run on the CPU"));
  CHECK(has(error.what(), "no such weather"));
  CHECK(error_of([&] { try_device(*classifier(std::make_shared<Elsewhere>(nullptr)), batch, "tpu"); }).kind() == ErrorKind::Usage);
}
