#include "testing.hpp"

#include "fake_host.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

Finding of_system(const Machine& m, const std::string& name) { return finding_of(check_system(m.host.view(), m.process), name); }

}  // namespace

TEST_CASE("operating system and kernel") {
  Machine m;
  make_laptop(m);
  CHECK(has(of_system(m, "operating system").finding, "Ubuntu 22.04.4 LTS, kernel 5.15.0-94-generic"));
  m.host.write("/proc/sys/kernel/osrelease", "3.10.0-1160.el7\n");
  CHECK((of_system(m, "operating system").verdict == Verdict::Warn));
  m.host.write("/proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n");
  CHECK(has(of_system(m, "operating system").finding, "WSL"));
  CHECK((of_system(m, "operating system").verdict == Verdict::Ok));
}

TEST_CASE("libtorch that is another one than at compile time, too old, too new, of the old ABI") {
  Machine m;
  make_laptop(m);
  CHECK((of_system(m, "libtorch").verdict == Verdict::Ok));
  m.process.torch_library = "2.12.1";
  CHECK((of_system(m, "libtorch").verdict == Verdict::Fail));
  CHECK(has(of_system(m, "libtorch").fix, "Torch_DIR"));
  m.process.torch_library = m.process.torch_headers = "2.10.0";
  CHECK((of_system(m, "libtorch").verdict == Verdict::Fail));
  m.process.torch_library = m.process.torch_headers = "2.31.0+cpu";
  CHECK((of_system(m, "libtorch").verdict == Verdict::Warn));
  CHECK((of_system(m, "ABI").verdict == Verdict::Ok));
  m.process.cxx11_abi = false;
  CHECK((of_system(m, "ABI").verdict == Verdict::Warn));
}
