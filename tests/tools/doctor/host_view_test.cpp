#include "testing.hpp"

#include "npu_train/tools/doctor/host_view.hpp"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "fake_host.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("files are read up to a bound; folders, pipes and what is missing are nothing") {
  FakeHost host;
  host.write("/etc/a", "hello");
  host.folder("/etc/folder");
  ::mkfifo((host.root() / "pipe").c_str(), 0600);
  const auto view = host.view();
  CHECK(view.read("/etc/a") == "hello");
  CHECK(view.read("/etc/a", 3) == "hel");
  CHECK(!view.read("/etc/folder"));
  CHECK(!view.read("/pipe"));  // also does not wait for a writer
  CHECK(!view.read("/none"));
  CHECK(view.exists("/etc/a"));
  CHECK(!view.is_folder("/etc/a"));
  CHECK((view.list("/etc") == std::vector<std::string>{"a", "folder"}));
  CHECK(view.list("/none").empty());
}

TEST_CASE("links are followed inside the root") {
  FakeHost host;
  host.write("/opt/cann-9.1.0/version", "9");
  host.link("/opt/cann", "cann-9.1.0");
  CHECK(host.view().read("/opt/cann/version") == "9");
  CHECK(host.view().resolved("/opt/cann") == "/opt/cann-9.1.0");
  CHECK(host.view().resolved("/opt/none") == "/opt/none");
  host.link("/out", "/etc");
  CHECK(host.view().resolved("/out") == "/out");
}

TEST_CASE("this machine: only known variables are read") {
  ::setenv("NPU_TRAIN_DOCTOR_SECRET_TOKEN", "hidden", 1);
  ::setenv("ASCEND_LAUNCH_BLOCKING", "1", 1);
  const auto view = HostView::live();
  ::unsetenv("ASCEND_LAUNCH_BLOCKING");
  CHECK(view.variable("ASCEND_LAUNCH_BLOCKING") == "1");
  CHECK(!view.has_variable("NPU_TRAIN_DOCTOR_SECRET_TOKEN"));
  CHECK(view.variable("NPU_TRAIN_DOCTOR_SECRET_TOKEN").empty());
  CHECK(view.space("/")->total > 0);
  CHECK(!view.space("/no/such/place"));
  CHECK(view.may_use("/dev/null"));
  CHECK(!view.may_use("/no/such/place"));
}
