#include "testing.hpp"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <torch/types.h>

#include "device/cpu/cpu_features.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"

using namespace npu_train;

using npu_train::testing::error_of;
using npu_train::testing::has;

TEST_CASE("every kind has a backend that says whether it is there") {
  REQUIRE(all_backends().size() >= 4);
  for (const auto* b : all_backends()) {
    CAPTURE(b->name());
    CHECK(&backend_of({b->name(), 0}) == b);
    CHECK(b->is_available() == b->why_not().empty());
    CHECK((b->may_be_there() || !b->is_available()));
    CHECK(b->is_available() == (b->count() > 0));
  }
  CHECK(error_of([] { backend_of({"abacus", 0}); }).kind() == ErrorKind::Usage);
}

TEST_CASE("an absent backend refuses everything with its reason") {
  for (const auto* b : all_backends()) {
    if (b->is_available()) continue;
    const Device d{b->name(), 0};
    CAPTURE(b->name());
    for (const auto& e : {error_of([&] { b->synchronize(d); }), error_of([&] { b->memory(d); }), error_of([&] { b->reset_peak(d); }),
                          error_of([&] { b->capabilities(d); }), error_of([&] { b->generator(d); })}) {
      CHECK(e.kind() == ErrorKind::Device);
      CHECK(std::string(e.what()).find(b->why_not()) != std::string::npos);
    }
  }
}

TEST_CASE("a CPU build names the libtorch to install for CUDA") {
  const auto& cuda = backend_of({"cuda", 0});
  if (cuda.is_available()) {
    CHECK(cuda.why_not().empty());
  } else {
    CHECK(has(cuda.why_not(), "CUDA"));
    CHECK((has(cuda.why_not(), "pip install torch") || has(cuda.why_not(), "nvidia-smi")));
  }
}

TEST_CASE("host memory: the peak is seen and can be reset") {
  const auto& cpu = backend_of({});
  cpu.synchronize({});
  const auto before = cpu.memory({});
  CHECK(before.allocated > 1 << 20);
  CHECK(before.total > before.allocated);
  constexpr int64_t kBytes = int64_t{256} << 20;
  { const auto big = at::ones({kBytes / 4}); }
  const auto after = cpu.memory({});
  CHECK(after.peak >= before.allocated + kBytes * 9 / 10);
  CHECK(host_peak_rss() >= after.peak);
  cpu.reset_peak({});
  CHECK(cpu.memory({}).peak < after.peak - kBytes / 2);
}

TEST_CASE("capabilities of the CPU come from what it says") {
  using npu_train::detail::parse_cpuinfo;
  const auto avx2 = parse_cpuinfo("processor\t: 0\nflags\t\t: fpu avx2 fma f16c\n");
  CHECK_FALSE(avx2.bf16);
  CHECK_FALSE(avx2.fp16);
  CHECK(parse_cpuinfo("flags\t\t: avx512f avx512_bf16\n").bf16);
  CHECK_FALSE(parse_cpuinfo("flags\t\t: avx512f avx512_bf16\n").fp16);
  CHECK(parse_cpuinfo("flags : amx_bf16 amx_tile").bf16);
  CHECK(parse_cpuinfo("flags : avx512_fp16 amx_fp16").fp16);
  CHECK_FALSE(parse_cpuinfo("flags : avx512_fp16 amx_bf16").fp16);  // no fast weight gradients of convolutions
  const auto kunpeng = parse_cpuinfo("processor\t: 0\nFeatures\t: fp asimd asimdhp fphp bf16\n");
  CHECK(kunpeng.bf16);
  CHECK_FALSE(kunpeng.fp16);
  CHECK_FALSE(parse_cpuinfo("bogomips : avx512_bf16").bf16);
  CHECK_FALSE(parse_cpuinfo("").bf16);
  const auto own = backend_of({}).capabilities({});
  CHECK(own.native_bf16 == npu_train::detail::cpu_features().bf16);
  CHECK_FALSE(own.streams);
  CHECK((own.skips_on_device && own.computes_without_units));
  CHECK_FALSE(own.saturating_overflow);
}

TEST_CASE("a small file that is not there") { CHECK(npu_train::detail::read_small_file("/nonexistent/file").empty()); }

namespace {

/// A backend for a device type that has no implementation in this process.
struct Absent final : GenericBackend {
  Absent() : GenericBackend("absent", c10::DeviceType::HPU) {}
  std::string why_not() const override { return "there is no absent device"; }
  Capabilities capabilities(const Device& device) const override {
    checked(device);
    return {};
  }
};

}  // namespace

TEST_CASE("a backend without libtorch's part of its device is not available, and says why wherever it is used") {
  const Absent backend;
  const Device device{"absent", 0};
  CHECK(backend.name() == "absent");
  CHECK(backend.count() == 0);
  CHECK(!backend.is_available());
  for (const auto& e : {error_of([&] { backend.capabilities(device); }), error_of([&] { backend.synchronize(device); }),
                        error_of([&] { backend.memory(device); }), error_of([&] { backend.generator(device); })}) {
    CHECK(e.kind() == ErrorKind::Device);
    CHECK(npu_train::testing::has(e.what(), "there is no absent device"));
  }
}
