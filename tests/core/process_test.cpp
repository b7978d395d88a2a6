#include "testing.hpp"

#include "npu_train/core/process.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <thread>

using namespace npu_train;
using namespace npu_train::testing;
using namespace std::chrono_literals;

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
  CHECK(run_command({"echo", "$HOME; rm x"}).output == "$HOME; rm x\n");  // no shell interprets it
  CHECK(run_command({"cat"}).ok());                                       // ends, because stdin is empty
  const auto killed = run_command({"sh", "-c", "kill -9 $$"});
  CHECK((killed.end == CommandResult::End::Signalled));
  CHECK(killed.status == 9);
}

TEST_CASE("a command that hangs is ended, with what it started") {
  CommandResult result;
  for (auto deadline = 300ms; result.output.find('\n') == std::string::npos; deadline *= 2) {  // until the command has printed a number
    REQUIRE(deadline < 100s);
    result = run_command({"sh", "-c", "sleep 100000 & echo $!; sleep 100000"}, {.deadline = deadline});
    CHECK((result.end == CommandResult::End::TimedOut));
  }
  const auto state_of_child = [&] {
    std::ifstream stat("/proc/" + result.output.substr(0, result.output.find('\n')) + "/stat");
    std::string number, name, state = "gone";
    stat >> number >> name >> state;
    return state;
  };
  // Waits until the child has ended: it was sent a signal, and the scheduler decides when it goes. A child that was not killed lives until
  // the test's time limit.
  for (auto state = state_of_child(); state != "gone" && state != "Z" && state != "X"; state = state_of_child())
    std::this_thread::sleep_for(1ms);
  // A child that closes its output and hangs is ended, too.
  CHECK((run_command({"sh", "-c", "exec >&- 2>&-; sleep 100"}, {.deadline = 300ms}).end == CommandResult::End::TimedOut));
}

TEST_CASE("endless output is cut and does not block the command") {
  const auto result = run_command({"sh", "-c", "head -c 3000000 /dev/zero"}, {.deadline = 20s, .max_output = 1000});
  CHECK(result.ok());
  CHECK(result.output.size() == 1000);
}

TEST_CASE("a command with a deadline has a process group of its own, one without stays in that of its caller") {
  const std::vector<std::string> group_of_itself = {"sh", "-c", "cut -d ' ' -f 5 /proc/$$/stat"};
  const auto own = std::to_string(::getpgrp()) + "\n";
  const auto with = run_command(group_of_itself), without = run_command(group_of_itself, {.deadline = std::nullopt});
  REQUIRE(with.ok());
  REQUIRE(without.ok());
  CHECK(with.output != own);
  CHECK(without.output == own);
}

TEST_CASE("a file that grows beyond the limit ends the command") {
  const TempDir dir;
  const auto write = [&](const std::string& bytes) {
    return run_command({"dd", "if=/dev/zero", "of=" + (dir / "file").string(), "bs=" + bytes, "count=1"}, {.max_file_bytes = 5000});
  };
  CHECK(write("5000").ok());
  const auto large = write("5001");
  CHECK_FALSE(large.ok());
  CHECK(std::filesystem::file_size(dir / "file") == 5000);
}

TEST_CASE("a process that ends has written all and called what was given to at_quick_exit") {
  const TempDir dir;
  static std::filesystem::path called;
  called = dir / "called";
  const auto child = ::fork();
  if (child == 0) {
    std::freopen((dir / "stdio").c_str(), "w", stdout);
    static std::ofstream in_a_buffer;  // gives std::cout a buffer of its own, which is then that of a file stream
    in_a_buffer.open(dir / "iostream");
    std::cout.rdbuf(in_a_buffer.rdbuf());
    std::at_quick_exit([] { std::ofstream(called) << "yes"; });
    std::printf("printed");
    std::cout << "streamed";
    end_process(7);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
  const auto text_of = [](const std::filesystem::path& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
  };
  CHECK(text_of(dir / "stdio") == "printed");
  CHECK(text_of(dir / "iostream") == "streamed");
  CHECK(text_of(called) == "yes");
}
