#include "testing.hpp"

#include "npu_train/tools/doctor/environment_matrix.hpp"

#include <algorithm>

#include "fake_host.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

MatrixRow row(const Machine& m, const std::string& component) {
  const auto rows = environment_matrix(m.host.view(), m.process);
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const MatrixRow& r) { return r.component == component; });
  REQUIRE(found != rows.end());
  return *found;
}

}  // namespace

TEST_CASE("the versions of the guides of CANN 7, next to today's") {
  Machine m;
  make_laptop(m);
  const std::pair<const char*, std::pair<const char*, const char*>> wanted[] = {
      {"PyTorch", {"2.1.0", "1.8.1"}},
      {"torch_npu", {"2.1.0", "1.8.1"}},
      {"CANN", {"7.0.RC1", "6.3.RC1"}},
      {"Python", {"3.8", "3.7 to 3.9"}},
      {"CMake", {"3.12", "3.12"}},
      {"gcc", {"7.3", "7.3"}},
      {"operating system", {"Ubuntu 18.04 or 20.04", "CentOS 7.6"}}};
  for (const auto& [component, versions] : wanted) {
    INFO(component);
    CHECK(row(m, component).recommended_cann7 == versions.first);
    CHECK(row(m, component).minimum_cann7 == versions.second);
    CHECK(!row(m, component).recommended.empty());
    CHECK(!row(m, component).minimum.empty());
  }
  for (const char* tool : {"atc", "msprof", "aicc"}) CHECK(row(m, tool).here.empty());
  const auto text = matrix_report(environment_matrix(m.host.view(), m.process), m.host.view()).text(100);
  for (const char* variable : {"ASCEND_HOME", "TOOLCHAIN_HOME", "ASCEND_AICPU_PATH", "PYTHONPATH"}) CHECK(has(text, variable));
}

TEST_CASE("the installed versions of a machine") {
  Machine m;
  make_ascend_box(m);
  m.host.commands["python3 --version"] = says("Python 3.9.18\n");
  m.host.commands["cmake --version"] = says("cmake version 3.25.1\n\nCMake suite maintained by Kitware\n");
  m.host.commands["gcc -dumpfullversion"] = says("12.2.0\n");
  m.host.write("/usr/local/Ascend/cann-9.1.0/bin/atc", "");
  m.host.write("/opt/toolchain/bin/aicc", "");
  m.host.environment["TOOLCHAIN_HOME"] = "/opt/toolchain";
  m.host.environment["PYTHONPATH"] = "/opt/modules";
  CHECK(row(m, "PyTorch").here == "2.11.0");
  m.process.torch_loaded = false;
  CHECK(row(m, "PyTorch").here == "");
  CHECK(row(m, "torch_npu").here == "2.11.0");
  CHECK(row(m, "CANN").here == "9.1.0");
  CHECK(row(m, "Python").here == "3.9.18");
  CHECK(row(m, "operating system").here == "Ubuntu 22.04.4 LTS");
  CHECK(row(m, "CMake").here == "3.25.1");
  CHECK(row(m, "gcc").here == "12.2.0");
  CHECK(has(row(m, "atc").here, "/bin/atc"));
  CHECK(row(m, "aicc").here == "/opt/toolchain/bin/aicc");
  CHECK(row(m, "msprof").here.empty());
  const auto json = matrix_report(environment_matrix(m.host.view(), m.process), m.host.view()).json();
  CHECK(json.at("variables", "x").at("PYTHONPATH", "x").text("x") == "/opt/modules");
  const auto finding = finding_of(check_ascend(m.host.view(), m.process), "environment matrix");
  CHECK((finding.verdict == Verdict::Ok));
  CHECK(has(finding.finding, "Python 3.9.18"));
}

TEST_CASE("older than any of the guides allows") {
  Machine m;
  make_ascend_box(m);
  m.host.commands["python3 --version"] = says("Python 3.6.9\n");
  m.host.commands["gcc -dumpfullversion"] = says("4.8.5\n");
  CHECK(row(m, "Python").too_old());
  CHECK(row(m, "gcc").too_old());
  CHECK(!row(m, "CMake").too_old());  // not installed
  CHECK(!row(m, "operating system").too_old());
  const auto finding = finding_of(check_ascend(m.host.view(), m.process), "environment matrix");
  CHECK((finding.verdict == Verdict::Warn));
  CHECK(has(finding.finding, "Python 3.6.9 (at least 3.7 to 3.9 with CANN 7, 3.10 today)"));
  CHECK(has(finding.fix, "--versions"));
  m.host.commands["python3 --version"] = says("Python 3.7.5\n");
  CHECK(!row(m, "Python").too_old());
}
