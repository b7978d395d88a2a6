#include "testing.hpp"

#include "npu_train/doctor/host_view.hpp"

#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "fake_host.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using namespace std::chrono_literals;

TEST_CASE("files are read up to a bound; folders, pipes and what is missing are nothing") {
  FakeHost host;
  host.write("/etc/a", "hello");
  host.folder("/etc/folder");
  ::mkfifo((host.root() / "pipe").c_str(), 0600);
  const auto view = host.view();
  CHECK(view.read("/etc/a") == "hello");
  CHECK(view.read("/etc/a", 3) == "hel");
  CHECK(!view.read("/etc/folder"));
  CHECK(!view.read("/pipe"));  // and does not wait for a writer
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

TEST_CASE("commands: what they say, how they end") {
  const auto good = run_command({"sh", "-c", "echo out; echo err >&2; exit 3"});
  CHECK((good.end == CommandResult::End::Exited));
  CHECK(good.status == 3);
  CHECK(!good.ok());
  CHECK(has(good.output, "out"));
  CHECK(has(good.output, "err"));
  CHECK(run_command({"true"}).ok());
  CHECK((run_command({"no-such-command-anywhere"}).end == CommandResult::End::NotFound));
  CHECK((run_command({}).end == CommandResult::End::NotFound));
  CHECK(run_command({"echo", "$HOME; rm x"}).output == "$HOME; rm x\n");  // no shell
  CHECK(run_command({"cat"}).ok());                                       // stdin is empty
  const auto killed = run_command({"sh", "-c", "kill -9 $$"});
  CHECK((killed.end == CommandResult::End::Signalled));
  CHECK(killed.status == 9);
}

TEST_CASE("a command that hangs is ended, with what it started") {
  CommandResult result;
  for (auto deadline = 300ms; result.output.find('\n') == std::string::npos; deadline *= 2) {  // until it got so far
    REQUIRE(deadline < 100s);
    result = run_command({"sh", "-c", "sleep 100000 & echo $!; sleep 100000"}, deadline);
    CHECK((result.end == CommandResult::End::TimedOut));
  }
  const auto state_of_child = [&] {
    std::ifstream stat("/proc/" + result.output.substr(0, result.output.find('\n')) + "/stat");
    std::string number, name, state = "gone";
    stat >> number >> name >> state;
    return state;
  };
  // It was sent a signal; when it goes is the scheduler's business. A child that was forgotten lives until the time limit of the test.
  for (auto state = state_of_child(); state != "gone" && state != "Z" && state != "X"; state = state_of_child())
    std::this_thread::sleep_for(1ms);
  // one that closes its output and hangs too
  CHECK((run_command({"sh", "-c", "exec >&- 2>&-; sleep 100"}, 300ms).end == CommandResult::End::TimedOut));
}

TEST_CASE("endless output is cut and does not block the command") {
  const auto result = run_command({"sh", "-c", "head -c 3000000 /dev/zero"}, 20s, 1000);
  CHECK(result.ok());
  CHECK(result.output.size() == 1000);
}
