#include "testing.hpp"

#include "npu_train/device/generic_backend.hpp"

#include <torch/types.h>

#include "npu_train/core/error.hpp"

using namespace npu_train;
using npu_train::testing::error_of;

namespace {

/// A backend for a device type of which this process has no part.
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
