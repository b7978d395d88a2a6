#include "testing.hpp"

#include "npu_train/tools/doctor/setup_steps.hpp"

#include <algorithm>

#include "fake_host.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

using State = SetupStep::State;

std::vector<SetupStep> steps_of(const Machine& m) { return setup_steps(m.host.view(), m.process); }

SetupStep step(const Machine& m, const std::string& name) {
  for (const auto& s : steps_of(m))
    if (s.name == name) return s;
  FAIL("no step named ", name);
  return {};
}

std::string commands_of(const Machine& m) {
  std::string out;
  for (const auto& s : steps_of(m))
    for (const auto& command : s.commands) out += command + "\n";
  return out;
}

// Makes a server with everything that the steps install.
void make_complete(Machine& m) {
  make_ascend_box(m);
  m.host.write("/etc/group", "root:x:0:\nHwHiAiUser:x:1001:me\n");
  m.host.write("/usr/local/Ascend/firmware/version.info", "Version=7.8.0.5.216\n");
  m.host.write("/usr/local/Ascend/cann-9.1.0/aarch64-linux/ascend_ops_install.info", "package_name=Ascend-cann-910b-ops\nversion=9.1.0\n");
}

}  // namespace

TEST_CASE("a complete server: only what no one can see is left") {
  Machine m;
  make_complete(m);
  for (const auto& s : steps_of(m)) {
    CAPTURE(s.name);
    const bool unseen = s.name == "Python packages of CANN" || s.name == "variables" || s.name == "check";
    CHECK((s.state == (unseen ? State::Unknown : State::Done)));
    CHECK(s.commands.empty() != unseen);
  }
  for (const auto& words : m.host.asked) CHECK(has(words[0], "npu-smi"));  // no other command was executed
}

TEST_CASE("a server without software: the packages of its chip, driver before firmware before CANN") {
  Machine m;
  make_ascend_box(m);
  for (const char* path : {"/usr/local/Ascend", "/etc/ascend_install.info", "/dev", "/opt/libtorch_npu"}) m.host.remove(path);
  m.host.commands.clear();
  m.host.environment.clear();
  CHECK((step(m, "NPU").state == State::Done));  // seen on the PCI bus
  for (const char* name : {"user of the driver", "driver", "firmware", "npu-smi", "CANN", "operators of the chip", "torch_npu"}) {
    CAPTURE(name);
    CHECK((step(m, name).state == State::Missing));
    CHECK(!step(m, name).commands.empty());
  }
  CHECK(commands_of(m) ==
        "sudo groupadd HwHiAiUser\nsudo useradd -g HwHiAiUser -d /home/HwHiAiUser -m HwHiAiUser -s /bin/bash\n"
        "sudo usermod -aG HwHiAiUser $USER\n"
        "sudo bash ./Ascend-hdk-910b-npu-driver_26.0.rc1_linux-aarch64.run --full --install-for-all\n"
        "sudo bash ./Ascend-hdk-910b-npu-firmware_*.run --full\nsudo reboot\nnpu-smi info\n"
        "bash ./Ascend-cann-toolkit_9.1.0_linux-aarch64.run --install\nbash ./Ascend-cann-910b-ops_9.1.0_linux-aarch64.run --install\n"
        "python3 -m pip install attrs cython numpy decorator sympy cffi pyyaml pathlib2 psutil protobuf==3.20.0 scipy requests absl-py\n"
        "source /usr/local/Ascend/cann/set_env.sh\npython3 -m pip install 'torch-npu==2.11.*' numpy pyyaml\n"
        "npu_tool doctor --no-hello --write-env env.sh\nsource env.sh\nnpu_tool doctor --device npu\n");
  m.process.machine = "x86_64";
  m.host.edit("/sys/bus/pci/devices/0000:c1:00.0/device", "0xd802", "0xd801");
  CHECK(has(step(m, "driver").commands[0], "Ascend-hdk-910-npu-driver_26.0.rc1_linux-x86-64.run"));
  CHECK(has(step(m, "CANN").commands[0], "linux-x86_64.run"));
  CHECK(has(step(m, "operators of the chip").commands[0], "Ascend-cann-910-ops_9.1.0"));
}

TEST_CASE("a driver that is too old is replaced after the firmware") {
  Machine m;
  make_complete(m);
  m.host.edit("/usr/local/Ascend/driver/version.info", "Version=26.0.rc1", "Version=24.1.0");
  const auto steps = steps_of(m);
  const auto at = [&](const char* name) {
    return std::find_if(steps.begin(), steps.end(), [&](const SetupStep& s) { return s.name == name; }) - steps.begin();
  };
  CHECK(at("firmware") < at("driver"));
  CHECK((step(m, "driver").state == State::TooOld));
  CHECK(has(step(m, "driver").needed, "at least 25.2.0"));
  CHECK(step(m, "firmware").commands == std::vector<std::string>{"sudo bash ./Ascend-hdk-910b-npu-firmware_*.run --upgrade"});
  CHECK(step(m, "driver").commands ==
        std::vector<std::string>{"sudo bash ./Ascend-hdk-910b-npu-driver_26.0.rc1_linux-aarch64.run --upgrade"});
  CHECK(step(m, "npu-smi").commands[0] == "sudo reboot");
  m.host.edit("/usr/local/Ascend/driver/version.info", "Version=24.1.0", "Version=odd");
  CHECK((step(m, "driver").state == State::Unknown));
  CHECK(has(step(m, "driver").commands[0], "--full"));
}

TEST_CASE("CANN and torch_npu of other versions, and a shell without the environment") {
  Machine m;
  make_complete(m);
  m.host.edit("/usr/local/Ascend/cann-9.1.0/aarch64-linux/ascend_toolkit_install.info", "version=9.1.0", "version=8.5.0");
  CHECK((step(m, "CANN").state == State::TooOld));
  CHECK(has(step(m, "CANN").found, "CANN 8.5.0 in "));
  CHECK((step(m, "operators of the chip").state == State::Done));
  m.host.edit("/usr/local/Ascend/cann-9.1.0/aarch64-linux/ascend_ops_install.info", "version=9.1.0", "version=8.5.0");
  CHECK((step(m, "operators of the chip").state == State::TooOld));
  m.host.edit("/opt/libtorch_npu/version.txt", "2.11.0", "2.7.1");
  CHECK((step(m, "torch_npu").state == State::TooOld));
  m.host.edit("/opt/libtorch_npu/version.txt", "2.7.1", "2.99.0");
  CHECK((step(m, "torch_npu").state == State::TooNew));
  CHECK(std::string(setup_state_name(State::TooNew)) == "too new");
  CHECK(has(step(m, "torch_npu").commands.at(0), "'torch-npu=="));
  m.host.environment.erase("ASCEND_HOME_PATH");
  CHECK(step(m, "environment of CANN").commands == std::vector<std::string>{"source /usr/local/Ascend/cann/set_env.sh"});
  m.process.torch_headers = "2.99.0";  // the table does not have this libtorch
  CHECK(has(step(m, "CANN").needed, "the table of 20"));
  CHECK(has(step(m, "CANN").needed, "COMPATIBILITY.md"));
}

TEST_CASE("a machine without an NPU, and a chip that is not in the table") {
  Machine m;
  make_laptop(m);
  CHECK((step(m, "NPU").state == State::Missing));
  CHECK(has(step(m, "driver").commands[0], "Ascend-hdk-CHIP-npu-driver_"));
  CHECK(has(step(m, "operators of the chip").commands[0], "Ascend-cann-CHIP-ops_"));
  Machine other;
  make_complete(other);
  other.host.commands["npu-smi info"] = says(smi_table(smi_chip(0, "777", "OK", "1 / 2"), ""));
  CHECK((step(other, "NPU").state == State::Unknown));
  CHECK(has(step(other, "NPU").needed, "CHIP"));
}

TEST_CASE("the steps as text and as JSON") {
  Machine m;
  make_complete(m);
  m.host.remove("/etc/group");
  const auto text = to_text(steps_of(m));
  CHECK(has(text, "8 of 12 steps are done; nothing was installed or changed"));
  CHECK(has(text, "missing"));
  CHECK(has(text, "2. user of the driver: no group HwHiAiUser"));
  CHECK(has(text, "sudo groupadd HwHiAiUser"));
  const auto json = to_json(steps_of(m));
  CHECK(json.at("steps", "x").items("x").size() == 12);
  CHECK(json.at("steps", "x").items("x")[1].at("commands", "x").items("x").size() == 3);
}
