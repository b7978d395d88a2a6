#include "testing.hpp"

#include "npu_train/device/backend.hpp"
#include "npu_train/device/device.hpp"

using namespace npu_train;
using npu_train::testing::error_of;

TEST_CASE("device names are read") {
  CHECK(Device::parse("cpu") == Device{"cpu", 0});
  CHECK(Device::parse("cuda") == Device{"cuda", 0});
  CHECK(Device::parse("cuda:1") == Device{"cuda", 1});
  CHECK(Device::parse("npu:7") == Device{"npu", 7});
  CHECK(Device::parse("sim_npu").kind == "sim_npu");
}

TEST_CASE("device names round trip") {
  for (const char* text : {"cpu", "cuda:0", "cuda:12", "npu:3", "sim_npu:0"}) CHECK(Device::parse(text).str() == text);
}

TEST_CASE("what is not a device is refused with what is allowed") {
  for (const char* text : {"", "auto", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda: 1", "cuda:128", "cuda:99999999999999999999", "cpu:1",
                           ":0", "CPU", "cuda:0:1"}) {
    CAPTURE(text);
    const auto e = error_of([&] { Device::parse(text); });
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK(std::string(e.what()).find("cuda:0") != std::string::npos);
    CHECK(std::string(e.what()).find("'" + std::string(text) + "'") != std::string::npos);
  }
  CHECK(std::string(error_of([] { Device::parse("cudda:0"); }).what()).find("did you mean cuda?") != std::string::npos);
}

TEST_CASE("libtorch's device of a device, and back") {
  CHECK(Device{}.c10() == c10::Device(c10::DeviceType::CPU));
  CHECK(Device{"cuda", 2}.c10() == c10::Device(c10::DeviceType::CUDA, 2));
  CHECK(Device{"npu", 1}.c10().type() == c10::DeviceType::PrivateUse1);
  CHECK(Device{"sim_npu", 1}.c10().index() == 1);
  CHECK(device_of(c10::Device(c10::DeviceType::CUDA, 2)) == Device{"cuda", 2});
  CHECK(device_of(c10::Device(c10::DeviceType::CPU)) == Device{});
  CHECK(error_of([] { device_of(c10::Device(c10::DeviceType::Meta)); }).kind() == ErrorKind::Usage);
}

TEST_CASE("auto takes the first available device, never the simulator") {
  const auto device = resolve_device("auto");
  CHECK(device.kind != "sim_npu");
  CHECK(backend_of(device).is_available());
  bool earlier_available = false;
  for (const auto* backend : all_backends()) {
    if (backend->name() == device.kind) break;
    earlier_available |= backend->is_available();
  }
  CHECK_FALSE(earlier_available);
}

TEST_CASE("a device that does not exist is a device error with a remedy") {
  CHECK(resolve_device("cpu") == Device{});
  for (const auto* backend : all_backends()) {
    CAPTURE(backend->name());
    if (backend->name() == "sim_npu" || backend->name() == "npu") continue;  // loaded only when named; they have tests of their own
    if (backend->is_available()) {
      if (backend->name() == "cpu") continue;
      CHECK(error_of([&] { resolve_device(backend->name() + ":127"); }).kind() == ErrorKind::Device);
      continue;
    }
    const auto e = error_of([&] { resolve_device(backend->name()); });
    CHECK(e.kind() == ErrorKind::Device);
    CHECK(std::string(e.what()).find(backend->why_not()) != std::string::npos);
  }
}
