#include "testing.hpp"

#include "fake_host.hpp"

#include "tools/doctor/ascend_facts.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

struct AscendBox : Machine {
  AscendBox() { make_ascend_box(*this); }
  std::vector<Finding> all() const { return check_ascend(host.view(), process); }
  Finding at(const std::string& name) const { return finding_of(all(), name); }
  void npu_smi(const CommandResult& result) { host.commands["npu-smi info"] = result; }
  void chip(const std::string& name) { npu_smi(says(smi_table(smi_chip(0, name, "OK", "100 / 65536"), ""))); }
};

bool fails(const Finding& f, const std::string& finding, const std::string& fix) {
  CAPTURE(f.finding);
  CAPTURE(f.fix);
  return f.verdict == Verdict::Fail && has(f.finding, finding) && has(f.fix, fix);
}

bool warns(const Finding& f, const std::string& finding, const std::string& fix) {
  CAPTURE(f.finding);
  CAPTURE(f.fix);
  return f.verdict == Verdict::Warn && has(f.finding, finding) && has(f.fix, fix);
}

}  // namespace

TEST_CASE("a complete server reports its parts") {
  const AscendBox m;
  CHECK(has(m.at("device nodes").finding, "2 NPUs"));
  CHECK(m.at("driver").finding == "driver 26.0.rc1");
  CHECK(has(m.at("npu-smi").finding, "2 chips"));
  CHECK(has(m.at("chip").finding, "910B3 (Atlas A2): bf16 and fp16"));
  CHECK(has(m.at("overflow mode").finding, "IEEE 754"));
  CHECK(m.at("CANN").finding == "CANN 9.1.0");
  CHECK(has(m.at("driver for CANN").finding, "compatible"));
  CHECK(m.at("torch_npu").finding == "torch_npu 2.11.0 with libtorch 2.11.0");
  CHECK(has(m.at("CANN for torch_npu").evidence, "2026"));
  CHECK((m.at("torch_npu libraries").verdict == Verdict::Ok));
}

TEST_CASE("device nodes that are not mapped into the container") {
  AscendBox m;
  m.host.remove("/dev/devmm_svm");
  CHECK(fails(m.at("device nodes"), "/dev/devmm_svm missing", "--device=/dev/devmm_svm"));
  m.host.remove("/dev/davinci0");
  m.host.remove("/dev/davinci1");
  CHECK(fails(m.at("device nodes"), "/dev/davinci0", "docker run --device=/dev/davinci0"));
  CHECK(has(m.at("device nodes").evidence, "0000:c1:00.0 (0xd802)"));
}

TEST_CASE("device nodes that are closed to the user") {
  AscendBox m;
  m.host.closed = {"/dev/davinci1", "/dev/hisi_hdc"};
  CHECK(fails(m.at("permissions"), "/dev/hisi_hdc, /dev/davinci1", "HwHiAiUser"));
  CHECK(has(m.at("permissions").evidence, "user 1000, groups 1000 1001"));
}

TEST_CASE("the driver: missing, elsewhere, too old for CANN, unknown") {
  AscendBox m;
  m.host.edit("/usr/local/Ascend/driver/version.info", "Version=26.0.rc1", "Version=25.0.rc1");
  CHECK(fails(m.at("driver for CANN"), "too old", "26.0.RC1"));
  m.host.edit("/usr/local/Ascend/driver/version.info", "Version=25.0.rc1", "Version=25.2.0");
  CHECK((m.at("driver for CANN").verdict == Verdict::Ok));
  m.host.write("/usr/local/Ascend/driver/version.info", "Version=someday\n");
  CHECK(warns(m.at("driver for CANN"), "unknown", "release notes"));
  m.host.remove("/usr/local/Ascend/driver/version.info");
  CHECK(fails(m.at("driver"), "was not found", "Ascend HDK"));
  m.host.write("/opt/asc/driver/version.info", "package_version=25.5.0\n");
  m.host.write("/etc/ascend_install.info", "Driver_Install_Path_Param=/opt/asc\n");
  CHECK(m.at("driver").finding == "driver 25.5.0");
}

TEST_CASE("npu-smi: missing, hanging, without rights, failing, of an unknown form") {
  AscendBox m;
  m.host.commands.clear();
  CHECK(warns(m.at("npu-smi"), "not installed", "-v /usr/local/bin/npu-smi"));
  CHECK(m.host.asked.size() >= 3);  // searches its usual folders
  m.npu_smi({CommandResult::End::TimedOut, 0, "+---"});
  CHECK(fails(m.at("npu-smi"), "does not respond", "reset"));
  m.npu_smi(says("DrvMngGetConsoleLogLevel failed. (ret=4)\ndcmi module initialize failed. ret is -8005\n", 255));
  CHECK(fails(m.at("npu-smi"), "cannot reach the driver", "HwHiAiUser"));
  m.npu_smi(says("segmentation fault\n", 139));
  CHECK(fails(m.at("npu-smi"), "failed with exit code 139", "dmesg"));
  m.npu_smi(says("a new table\n"));
  CHECK(warns(m.at("npu-smi"), "no chip in a known format", "read its output"));
}

TEST_CASE("health") {
  AscendBox m;
  m.npu_smi(says(smi_table(smi_chip(0, "910B3", "OK", "1 / 65536") + smi_chip(1, "910B3", "Warning", "1 / 65536"), "")));
  CHECK(warns(m.at("health"), "NPU 1 chip 0 is Warning", "npu-smi info -t health"));
  m.npu_smi(says(smi_table(smi_chip(0, "910B3", "Alarm", "1 / 65536") + smi_chip(1, "910B3", "Warning", "1 / 65536"), "")));
  CHECK(fails(m.at("health"), "NPU 0 chip 0 is Alarm, NPU 1", "ASCEND_RT_VISIBLE_DEVICES"));
}

TEST_CASE("a device that another process holds: by npu-smi, by its open files, by its memory") {
  AscendBox m;
  CHECK((m.at("processes").verdict == Verdict::Ok));
  const auto chips = smi_chip(0, "910B3", "OK", "3165 / 65536");
  m.npu_smi(says(smi_table(chips,
                           "| 0       0                 | 48988         | python                   | 13330                   |\n"
                           "| 0       0                 | 4711          | npu_tool                 | 100                     |\n"
                           "| 0       0                 | 907864        |                          | 134                     |\n")));
  CHECK(warns(m.at("processes"), "2 other processes hold", "kill PID"));  // does not count this process itself
  CHECK(has(m.at("processes").evidence, "pid 48988 python on NPU 0, 13330 MB"));
  m.npu_smi(says(smi_table(chips, "")));
  m.host.write("/proc/555/comm", "train_app\n");
  m.host.link("/proc/555/fd/7", "/dev/davinci1");
  m.host.link("/proc/555/fd/8", "/dev/davinci_manager");
  CHECK(has(m.at("processes").evidence, "pid 555 train_app holds /dev/davinci1"));
  m.host.remove("/proc/555");
  m.npu_smi(says(smi_table(smi_chip(0, "910B3", "OK", "60000 / 65536"), "")));
  CHECK(warns(m.at("processes"), "not visible here", "another container"));
}

TEST_CASE("chips: Atlas A3, the first generation, unknown ones, several kinds") {
  AscendBox m;
  const auto table = smi_table(
      "| 0     Ascend910           | OK            | 178.5       36                0    / 0             |\n"
      "| 0     0                   | 0000:9D:00.0  | 0           0    / 0          3416 / 65536         |\n"
      "| 0     Ascend910           | OK            | -           36                0    / 0             |\n"
      "| 1     1                   | 0000:9F:00.0  | 0           0    / 0          3195 / 65536         |\n",
      "");
  auto a3 = table;
  a3.replace(a3.find("| Chip                      |"), 28, "| Chip  Phy-ID              |");
  m.npu_smi(says(a3));
  CHECK(has(m.at("chip").finding, "Atlas A3"));
  CHECK(has(m.at("npu-smi").finding, "2 chips"));
  m.chip("910ProB");
  CHECK(has(m.at("chip").finding, "no bf16"));
  CHECK(has(m.at("overflow mode").finding, "sets a flag"));
  m.chip("910B");  // no digit: the first generation
  CHECK(has(m.at("chip").finding, "first generation"));
  m.chip("1234X");
  CHECK(warns(m.at("chip"), "'1234X' is unknown", "Ascend910B (Atlas A2)"));
  CHECK((m.at("overflow mode").verdict == Verdict::NotHere));
  m.npu_smi(says(smi_table(smi_chip(0, "910B3", "OK", "1 / 2") + smi_chip(1, "910B4", "OK", "1 / 2"), "")));
  CHECK(warns(m.at("chip"), "different kinds", "ASCEND_RT_VISIBLE_DEVICES"));
}

TEST_CASE("overflow mode by the environment") {
  AscendBox m;
  m.host.environment["INF_NAN_MODE_ENABLE"] = "0";
  CHECK(fails(m.at("overflow mode"), "refuses to start", "INF_NAN_MODE_FORCE_DISABLE=1"));
  m.host.environment["INF_NAN_MODE_FORCE_DISABLE"] = "1";
  CHECK(warns(m.at("overflow mode"), "saturation is forced", "unset"));
  m.chip("910A");
  CHECK((m.at("overflow mode").verdict == Verdict::Ok));
}

TEST_CASE("CANN: not installed, not sourced, incomplete, without a version") {
  AscendBox m;
  m.host.remove("/usr/local/Ascend/cann/compiler");
  CHECK(fails(m.at("CANN"), "/usr/local/Ascend/cann/compiler", "source /usr/local/Ascend/cann/set_env.sh"));
  m.host.environment.erase("ASCEND_OPP_PATH");
  m.host.folder("/usr/local/Ascend/cann-9.1.0/compiler");
  CHECK(fails(m.at("CANN"), "ASCEND_OPP_PATH (not set)", "set_env.sh"));
  m.host.environment.erase("ASCEND_HOME_PATH");
  CHECK(fails(m.at("CANN"), "its environment is not set", "source /usr/local/Ascend/cann/set_env.sh"));
  m.host.environment = AscendBox().host.environment;
  m.host.remove("/usr/local/Ascend/cann-9.1.0/aarch64-linux");
  CHECK(warns(m.at("CANN"), "does not report its version", "reinstall"));
  CHECK(warns(m.at("CANN for torch_npu"), "unknown", "COMPATIBILITY"));
  m.host.remove("/usr/local/Ascend/cann-9.1.0");
  m.host.remove("/usr/local/Ascend/cann");
  m.host.environment.clear();
  CHECK(fails(m.at("CANN"), "not installed", "install the version of CANN"));
}

TEST_CASE("CANN in an older place and of older versions") {
  AscendBox m;
  m.host.write("/home/me/Ascend/ascend-toolkit/8.5.0/aarch64-linux/ascend_toolkit_install.info", "version=8.5.0\n");
  m.host.link("/home/me/Ascend/ascend-toolkit/latest", "8.5.0");
  m.host.write("/home/me/Ascend/ascend-toolkit/set_env.sh", "");
  m.host.remove("/usr/local/Ascend/cann");
  m.host.remove("/usr/local/Ascend/cann-9.1.0");
  m.host.environment = {{"HOME", "/home/me"}};
  CHECK(fails(m.at("CANN"), "/home/me/Ascend/ascend-toolkit/latest", "source /home/me/Ascend/ascend-toolkit/set_env.sh"));
  CHECK(fails(m.at("CANN for torch_npu"), "CANN is too old", "CANN 9.1.0"));
  CHECK((m.at("driver for CANN").verdict == Verdict::Ok));
}

TEST_CASE("CANN that is newer or unknown") {
  AscendBox m;
  const std::string info = "/usr/local/Ascend/cann-9.1.0/aarch64-linux/ascend_toolkit_install.info";
  m.host.write(info, "version=9.1.1\n");
  CHECK((m.at("CANN for torch_npu").verdict == Verdict::Ok));
  m.host.write(info, "version=9.2.0\n");
  CHECK(warns(m.at("CANN for torch_npu"), "newer", "9.1.0"));
  CHECK(warns(m.at("driver for CANN"), "unknown", "release notes"));
  m.process.torch_headers = m.process.torch_library = "2.13.0";
  CHECK(warns(m.at("CANN for torch_npu"), "torch_npu 2.13", "COMPATIBILITY"));
}

TEST_CASE("the order of the library path") {
  AscendBox m;
  const auto whole = m.host.environment["LD_LIBRARY_PATH"];
  m.host.environment["LD_LIBRARY_PATH"] = "/usr/local/Ascend/cann/devlib:" + whole;
  CHECK(fails(m.at("library path"), "devlib precedes", "devlib"));
  m.host.environment["LD_LIBRARY_PATH"] = whole + ":/usr/local/Ascend/cann/devlib";
  CHECK((m.at("library path").verdict == Verdict::Ok));
  m.host.write("/usr/local/Ascend/cann-8.5.0/lib64/libhccl.so", "");
  m.host.environment["LD_LIBRARY_PATH"] = whole + ":/usr/local/Ascend/cann-8.5.0/lib64";
  CHECK(warns(m.at("library path"), "8.5.0, 9.1.0", "one CANN"));
  m.host.environment.erase("LD_LIBRARY_PATH");
  CHECK(fails(m.at("library path"), "no folder", "set_env.sh"));
  m.host.write("/etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n");
  m.host.write("/etc/ld.so.conf.d/ascend.conf", "# CANN\n/usr/local/Ascend/cann/lib64\n/usr/local/Ascend/driver/lib64/driver\n");
  CHECK((m.at("library path").verdict == Verdict::Ok));
  CHECK((m.at("torch_npu libraries").verdict == Verdict::Ok));
}

TEST_CASE("torch_npu: not found, of another version, architecture or ABI, no library") {
  AscendBox m;
  const std::string file = "/opt/libtorch_npu/lib/libtorch_npu.so";
  m.host.write("/opt/libtorch_npu/version.txt", "2.12.0\n");
  CHECK(fails(m.at("torch_npu"), "minor versions must be equal", "'torch-npu==2.11.*'"));
  m.host.remove("/opt/libtorch_npu/version.txt");
  CHECK(warns(m.at("torch_npu"), "unknown version", "2.11"));
  m.host.folder("/opt/torch_npu-2.11.0.post1.dist-info");
  CHECK(has(m.at("torch_npu").finding, "torch_npu 2.11.0.post1 with"));
  m.host.write(file, FakeLibrary{.needed = {}, .names = "_ZN2at4_ops3absESs"}.bytes());
  CHECK(fails(m.at("torch_npu ABI"), "a different ABI", "_GLIBCXX_USE_CXX11_ABI=1"));
  m.host.write(file, FakeLibrary{.needed = {}, .machine = EM_X86_64}.bytes());
  CHECK(fails(m.at("torch_npu"), "for x86_64, this machine is aarch64", "'torch-npu==2.11.*'"));
  m.host.write(file, "version https://git-lfs.github.com/spec/v1\n");
  CHECK(fails(m.at("torch_npu"), "not a shared library", "'torch-npu==2.11.*'"));
  m.host.remove(file);
  CHECK(fails(m.at("torch_npu"), "not found", "NPU_TRAIN_TORCH_NPU"));
  CHECK(has(m.at("torch_npu").evidence, file));
  // searches next to torch and in the loader's folders if the variable is not set
  m.host.environment.erase("NPU_TRAIN_TORCH_NPU");
  m.process.torch_folder = "/site/torch/lib";
  m.host.write("/site/torch_npu/lib/libtorch_npu.so", FakeLibrary{{}}.bytes());
  CHECK(m.at("torch_npu").evidence.starts_with("/site/torch_npu/lib"));
}

TEST_CASE("the wheel of an environment: the named one alone, otherwise the active one before that of libtorch") {
  AscendBox m;
  m.host.environment.erase("NPU_TRAIN_TORCH_NPU");
  m.process.torch_folder = "/site/torch/lib";
  const auto wheel = [](const std::string& environment) {
    return environment + "/lib/python3.11/site-packages/torch_npu/lib/libtorch_npu.so";
  };
  for (const auto& file : {wheel("/active"), wheel("/named"), std::string("/site/torch_npu/lib/libtorch_npu.so")})
    m.host.write(file, FakeLibrary{{}}.bytes());
  m.host.environment["VIRTUAL_ENV"] = "/active";
  CHECK(m.at("torch_npu").evidence.starts_with(wheel("/active")));
  m.host.environment["NPU_TRAIN_PYTHON"] = "/named/bin/python";
  CHECK(m.at("torch_npu").evidence.starts_with(wheel("/named")));
  m.host.environment["NPU_TRAIN_PYTHON"] = "/named";
  CHECK(m.at("torch_npu").evidence.starts_with(wheel("/named")));
  m.host.environment["NPU_TRAIN_PYTHON"] = "/nothing";
  CHECK(fails(m.at("torch_npu"), "not found", "NPU_TRAIN_PYTHON"));
}

TEST_CASE("libraries of torch_npu that are not found") {
  AscendBox m;
  m.host.environment["LD_LIBRARY_PATH"] = "/usr/local/Ascend/cann/lib64";
  CHECK(fails(m.at("torch_npu libraries"), "libascend_hal.so (for libascendcl.so)", "/usr/local/Ascend/driver/lib64/driver"));
  m.host.environment["LD_LIBRARY_PATH"] = "/usr/local/Ascend/driver/lib64/driver";
  CHECK(fails(m.at("torch_npu libraries"), "libhccl.so (for libtorch_npu.so), libascendcl.so", "set_env.sh"));
  m.host.environment["LD_LIBRARY_PATH"] = "";
  const std::string file = "/opt/libtorch_npu/lib/libtorch_npu.so";
  m.host.write(file, FakeLibrary{.needed = {"libhccl.so"}, .runpath = "$ORIGIN/../bundled:/usr/local/Ascend/cann/lib64"}.bytes());
  m.host.write("/opt/libtorch_npu/bundled/libhccl.so", FakeLibrary{{}}.bytes());
  CHECK((m.at("torch_npu libraries").verdict == Verdict::Ok));
  m.host.write(file, FakeLibrary{.needed = {"libtorch_python.so"}}.bytes());
  CHECK(fails(m.at("torch_npu libraries"), "libtorch_python.so", "Python wheel"));
}

TEST_CASE("CANN on a machine without an NPU is a warning that lists the devices to map in a container") {
  AscendBox m;
  for (const char* path : {"/dev/davinci0", "/dev/davinci1", "/sys/bus", "/usr/local/Ascend/driver"}) m.host.remove(path);
  REQUIRE(m.all().size() == 1);
  CHECK(warns(m.at("Ascend NPU"), "CANN is installed, but no NPU", "--device=/dev/davinci_manager"));
}
