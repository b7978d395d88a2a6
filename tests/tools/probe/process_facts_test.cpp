#include "testing.hpp"

#include "npu_train/tools/probe/process_facts.hpp"

#include "device/ascend_chip.hpp"
#include "tools/doctor/ascend_facts.hpp"
#include "tools/doctor/fake_host.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("this machine and this process can be examined") {
  const auto process = this_process();
  CHECK(process.torch_loaded);
  CHECK(!process.machine.empty());
  CHECK(process.torch_headers.find('.') != std::string::npos);
  CHECK(process.torch_library == process.torch_headers);
  CHECK(process.threads >= 1);
  CHECK(process.pid > 0);
  const auto report =
      check_machine(HostView::live(), process, {.output = std::filesystem::temp_directory_path().string(), .write_bytes = 1 << 20});
  CHECK(report.total() >= 12);
  CHECK((finding_of(report.findings, "libtorch").verdict == Verdict::Ok));
  CHECK((finding_of(report.findings, "model").verdict != Verdict::Fail));
}

TEST_CASE("the doctor judges chips as the device room does") {
  for (const char* name : {"Ascend910B1", "Ascend910B4_1", "Ascend910_9392", "Ascend950PR", "Ascend310B1", "Ascend310P3", "Ascend910A",
                           "Ascend910B", "Ascend910ProB", "Ascend910PremiumA", "Ascend1", "Kirin"}) {
    INFO(name);
    const auto device = npu_train::detail::ascend_chip(name);
    const auto doctor = npu_train::detail::chip_facts(name, false);
    REQUIRE(device.has_value() == doctor.has_value());
    if (!device) continue;
    CHECK(device->bf16 == doctor->bf16);
    CHECK(device->can_choose == (doctor->overflow == "choice"));
    CHECK(device->saturates == (doctor->overflow == "saturates"));
  }
}
