#include "testing.hpp"

#include <algorithm>
#include <chrono>

#include "environment_variable.hpp"
#include "npu_train/core/host.hpp"
#include "npu_train/tools/launch/launcher.hpp"
#include "tools/launch/launcher_process.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Ranks that are shell scripts and share a folder.
struct Scripts {
  TempDir dir;
  EnvironmentVariable folder{"DIR", dir.path().string()}, probe{"PROBE", LAUNCH_PROBE};

  /// Defines `here`, which writes a rank's process ID to a file, and `gone RANK`, which waits until that process is gone, even as a zombie.
  static std::vector<std::string> command(const std::string& text, const std::string& word = "") {
    return {
        "sh", "-c",
        "here() { echo $$ > $DIR/new.$RANK && mv $DIR/new.$RANK $DIR/pid.$RANK; }\n"
        "gone() { until [ -e $DIR/pid.$1 ]; do sleep 0.01; done; while kill -0 $(cat $DIR/pid.$1) 2> /dev/null; do sleep 0.01; done; }\n" +
            text,
        "sh", word};
  }
  static LaunchOptions options(const std::string& text, int nproc = 2) { return {.command = command(text), .nproc = nproc}; }

  std::string content(const std::string& name) const { return content_of(dir / name); }
  bool exists(const std::string& name) const { return std::filesystem::exists(dir / name); }
  void make(const std::string& name) const { std::ofstream(dir / name) << '\n'; }
  pid_t pid_of(int rank) const { return pid_in(dir / ("pid." + std::to_string(rank))); }
};

const std::string kOnHost = " on host " + host_name() + " ";

}  // namespace

TEST_CASE("a rank gets the variables of torchrun, and nothing on stdin") {
  const Scripts scripts;
  const EnvironmentVariable before("RANK", "7"), kept("KEPT", "yes");
  LauncherProcess launcher(Scripts::options(
      "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $TORCHELASTIC_USE_AGENT_STORE $TORCHELASTIC_RESTART_COUNT "
      "$NPU_TRAIN_LAUNCHER $KEPT > $DIR/said.$RANK; echo $TORCHELASTIC_RUN_ID $MASTER_PORT > $DIR/run.$RANK; read x || echo none > "
      "$DIR/in.$RANK",
      3));
  CHECK(launcher.result().exit_code == 0);
  CHECK(launcher.nothing_is_left());
  for (int rank = 0; rank < 3; ++rank) {
    const auto r = std::to_string(rank);
    CHECK(scripts.content("said." + r) == r + " " + r + " 3 3 127.0.0.1 True 0 npu_train yes\n");
    CHECK(scripts.content("in." + r) == "none\n");
    CHECK(scripts.content("run." + r) == scripts.content("run.0"));
  }
}

TEST_CASE("the exit code is that of the rank that failed by itself") {
  const Scripts scripts;
  SUBCASE("which ended first") {
    LauncherProcess launcher(Scripts::options("here; if [ $RANK = 0 ]; then exit 5; fi; gone 0; exit 9"));
    const auto result = launcher.result();
    CHECK(result.exit_code == 5);
    CHECK(result.message == "rank 0 of 2" + kOnHost + "ended with exit code 5");
    CHECK(launcher.nothing_is_left());
    CHECK(launcher.adopted().empty());
  }
  SUBCASE("which ended after its victim") {
    LauncherProcess launcher(Scripts::options("here; if [ $RANK = 1 ]; then exit 9; fi; gone 1; exit 5"));
    const auto result = launcher.result();
    CHECK(result.exit_code == 5);
    CHECK(result.message == "rank 0 of 2" + kOnHost + "ended with exit code 5");
  }
}

TEST_CASE("a rank that is killed counts as 9, and its signal is named") {
  const Scripts scripts;
  LauncherProcess launcher(Scripts::options("here; if [ $RANK = 1 ]; then kill -KILL $$; fi; gone 1; exit 9"));
  const auto result = launcher.result();
  CHECK(result.exit_code == 9);
  CHECK(result.message == "rank 1 of 2" + kOnHost + "was killed by signal 9 (SIGKILL), as the system does when memory runs out");
  CHECK(launcher.nothing_is_left());
}

TEST_CASE("ranks that do not end after a failure are ended") {
  const Scripts scripts;
  auto options = Scripts::options("here; if [ $RANK = 0 ]; then exit 3; fi; trap '' TERM; while :; do sleep 0.01; done");
  options.grace = options.kill_after = std::chrono::milliseconds(50);
  LauncherProcess launcher(options);
  const auto result = launcher.result();
  CHECK(result.exit_code == 3);
  CHECK(result.message == "rank 0 of 2" + kOnHost + "ended with exit code 3");
  CHECK(launcher.nothing_is_left());
}

TEST_CASE("a rank that is stopped is killed as soon as another one fails, and named") {
  const Scripts scripts;
  auto options = Scripts::options(
      "here; [ $RANK = 1 ] && kill -STOP $$; until [ -e $DIR/pid.1 ]; do sleep 0.01; done\n"
      "until grep -q ') T ' /proc/$(cat $DIR/pid.1)/stat; do sleep 0.01; done; exit 9");
  options.grace = std::chrono::hours(10);
  LauncherProcess launcher(options);
  const auto result = launcher.result();
  CHECK(result.exit_code == 9);
  CHECK(result.message == "rank 1 of 2" + kOnHost + "was stopped (SIGSTOP), and others waited for it in vain");
  CHECK(launcher.nothing_is_left());
}

TEST_CASE("a rank may end by itself after the SIGTERM that follows the grace") {
  const Scripts scripts;
  auto options = Scripts::options(
      "trap 'echo saved > $DIR/saved; exit 143' TERM; here; if [ $RANK = 0 ]; then gone 1; exit 3; fi\n"
      "if [ $RANK = 1 ]; then until [ -e $DIR/pid.2 ]; do sleep 0.01; done; exit 9; fi; while :; do sleep 0.01; done",
      3);
  options.grace = std::chrono::milliseconds(50);
  options.kill_after = std::chrono::minutes(5);
  LauncherProcess launcher(options);
  CHECK(launcher.result().exit_code == 3);
  CHECK(scripts.content("saved") == "saved\n");
}

TEST_CASE("what a rank started ends with the rank") {
  const Scripts scripts;
  LauncherProcess launcher(Scripts::options("sleep 1000 & echo $! > $DIR/pid.$RANK; exit 0"));
  CHECK(launcher.result().exit_code == 0);
  CHECK(launcher.nothing_is_left());
  REQUIRE(launcher.adopted().size() == 2);
  for (const int status : launcher.adopted()) CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
}

TEST_CASE("ranks and store die with a launcher that is killed") {
  const Scripts scripts;
  LauncherProcess launcher(Scripts::options("here; exec sleep 1000"));
  REQUIRE(happens([&] { return scripts.exists("pid.0") && scripts.exists("pid.1"); }));
  const auto children = children_of(launcher.pid());
  CHECK(children.size() == 3);
  // Wait until the commands with which the shells wrote these files have ended.
  REQUIRE(happens([&] { return std::all_of(children.begin(), children.end(), [](const auto& c) { return children_of(c).empty(); }); }));
  launcher.send(SIGKILL);
  CHECK(launcher.nothing_is_left());
  REQUIRE(launcher.adopted().size() == 3);
  for (const int status : launcher.adopted()) CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
}

TEST_CASE("a signal reaches each rank once, and the launcher waits for them") {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    const Scripts scripts;
    const auto number = std::to_string(signal), code = std::to_string(128 + signal);
    auto options = Scripts::options("trap 'echo got >> $DIR/got.$RANK' " + number +
                                    "; here; while [ ! -e $DIR/go ]; do sleep 0.01; done; exit " + code);
    options.max_restarts = 3;
    LauncherProcess launcher(options);
    REQUIRE(happens([&] { return scripts.exists("pid.0") && scripts.exists("pid.1"); }));
    launcher.send(signal);
    REQUIRE(happens([&] { return scripts.exists("got.0") && scripts.exists("got.1"); }));
    scripts.make("go");
    const auto result = launcher.result();
    CHECK(result.exit_code == 128 + signal);
    CHECK(result.message.empty());
    for (const char* file : {"got.0", "got.1"}) CHECK(scripts.content(file) == "got\n");
    CHECK(launcher.nothing_is_left());
  }
}

TEST_CASE("a second signal, a second later, kills the ranks; what follows sooner is the same request") {
  const Scripts scripts;
  auto options = Scripts::options("trap 'echo got >> $DIR/got.$RANK' TERM; here; while :; do sleep 0.01; done");
  // The test sends one signal after the other, and the last one may arrive when the launcher no longer waits for signals.
  LauncherProcess launcher(options, [] { std::signal(SIGTERM, [](int) {}); });
  REQUIRE(happens([&] { return scripts.exists("pid.0") && scripts.exists("pid.1"); }));
  const auto first = std::chrono::steady_clock::now();
  launcher.send(SIGTERM);
  REQUIRE(happens([&] { return scripts.content("got.0") == "got\n" && scripts.content("got.1") == "got\n"; }));
  REQUIRE(happens([&] {
    launcher.send(SIGTERM);
    return launcher.has_result();
  }));
  CHECK(std::chrono::steady_clock::now() - first >= std::chrono::seconds(1));
  CHECK(launcher.result().exit_code == 128 + SIGTERM);
  for (const char* file : {"got.0", "got.1"}) CHECK(scripts.content(file) == "got\n");
  CHECK(launcher.nothing_is_left());
}

TEST_CASE("a rank that is stopped before its program runs does not keep the launcher from starting the others, and from ending") {
  const Scripts scripts;
  static int forks = 0;  // counts the store and the ranks
  LauncherProcess launcher(Scripts::options("trap 'exit 143' TERM; here; while :; do sleep 0.01; done", 3), [] {
    ::pthread_atfork([] { ++forks; }, nullptr,
                     [] {
                       if (forks == 3) ::raise(SIGSTOP);  // stops rank 1
                     });
  });
  REQUIRE(happens([&] { return scripts.exists("pid.0") && scripts.exists("pid.2"); }));
  CHECK_FALSE(scripts.exists("pid.1"));
  launcher.send(SIGTERM);
  CHECK(launcher.result().exit_code == 128 + SIGTERM);
  CHECK(launcher.nothing_is_left());
}

TEST_CASE("the store ends when a rank has failed by itself, so that ranks which still meet do not wait for it") {
  const Scripts scripts;
  auto options = Scripts::options("here; until [ -e $DIR/go.$RANK ]; do sleep 0.01; done; [ $RANK = 0 ] && exit 9; exit 4");
  options.grace = std::chrono::hours(10);
  LauncherProcess launcher(options);
  REQUIRE(happens([&] { return scripts.exists("pid.0") && scripts.exists("pid.1"); }));
  CHECK(children_of(launcher.pid()).size() == 3);
  scripts.make("go.1");
  REQUIRE(happens([&] { return children_of(launcher.pid()) == std::vector<pid_t>{scripts.pid_of(0)}; }));
  scripts.make("go.0");
  CHECK(launcher.result().exit_code == 4);
}

TEST_CASE("nohup and a parent that ignores its children") {
  const Scripts scripts;
  LauncherProcess launcher(Scripts::options("here; until [ -e $DIR/go ]; do sleep 0.01; done"), [] {
    std::signal(SIGHUP, SIG_IGN);
    std::signal(SIGCHLD, SIG_IGN);
  });
  REQUIRE(happens([&] { return scripts.exists("pid.0") && scripts.exists("pid.1"); }));
  launcher.send(SIGHUP);
  scripts.make("go");
  const auto result = launcher.result();
  CHECK_MESSAGE(result.exit_code == 0, result.message);
}

TEST_CASE("a restart starts all ranks again, with the command of restarts") {
  const Scripts scripts;
  const std::string text =
      "here; echo $TORCHELASTIC_RESTART_COUNT $WORLD_SIZE $1 >> $DIR/log.$RANK\n"
      "if [ $TORCHELASTIC_RESTART_COUNT = 2 ]; then exit 0; fi; if [ $RANK = 1 ]; then exit 4; fi; gone 1; exit 9";
  auto options = LaunchOptions{.command = Scripts::command(text, "new"), .restart_command = Scripts::command(text, "resumed")};
  SUBCASE("until it succeeds") {
    options.max_restarts = 5;
    LauncherProcess launcher(options);
    const auto result = launcher.result();
    CHECK(result.exit_code == 0);
    CHECK(result.message.empty());
    CHECK(scripts.content("log.0") == "0 2 new\n1 2 resumed\n2 2 resumed\n");
    CHECK(scripts.content("log.1") == "0 2 new\n1 2 resumed\n2 2 resumed\n");
    CHECK(launcher.nothing_is_left());
  }
  SUBCASE("as often as allowed") {
    options.max_restarts = 1;
    LauncherProcess launcher(options);
    CHECK(launcher.result().exit_code == 4);
    CHECK(scripts.content("log.0") == "0 2 new\n1 2 resumed\n");
  }
}

TEST_CASE("a restart with fewer ranks, not below the least number, and so that the global batch stays the same") {
  const Scripts scripts;
  auto options = Scripts::options(
      "rm -f $DIR/pid.$RANK; here; echo $TORCHELASTIC_RESTART_COUNT $WORLD_SIZE >> $DIR/log\n"
      "if [ $TORCHELASTIC_RESTART_COUNT = 3 ]; then exit 0; fi; if [ $RANK = 0 ]; then kill -KILL $$; fi; gone 0; exit 9",
      4);
  options.max_restarts = 3;
  options.min_nproc = 2;
  LauncherProcess launcher(options);
  const auto result = launcher.result();
  CHECK_MESSAGE(result.exit_code == 0, result.message);
  CHECK(scripts.content("log") == "0 4\n0 4\n0 4\n0 4\n1 2\n1 2\n2 2\n2 2\n3 2\n3 2\n");
}

TEST_CASE("no restart where no allowed number of ranks divides the first one") {
  const Scripts scripts;
  auto options = Scripts::options(
      "rm -f $DIR/pid.$RANK; here; echo $WORLD_SIZE of $NPU_TRAIN_FIRST_WORLD_SIZE >> $DIR/log; if [ $RANK = 0 ]; then exit 4; fi; gone 0; "
      "exit 9",
      3);
  options.max_restarts = 1;
  options.min_nproc = 2;
  LauncherProcess launcher(options);
  const auto result = launcher.result();
  CHECK(result.exit_code == 4);
  CHECK(has(result.message, "no restart: no number of ranks from 2 to 2 divides 3"));
  CHECK(scripts.content("log") == "3 of 3\n3 of 3\n3 of 3\n");
}

TEST_CASE("no restart where it would end alike") {
  for (const int code : {2, 5, 7, 130}) {
    const Scripts scripts;
    auto options = Scripts::options("echo $RANK >> $DIR/log; exit " + std::to_string(code), 1);
    options.max_restarts = 3;
    LauncherProcess launcher(options);
    CHECK(launcher.result().exit_code == code);
    CHECK(scripts.content("log") == "0\n");
  }
}

TEST_CASE("ranks meet through the store, and again after a restart") {
  const Scripts scripts;
  auto options = Scripts::options("$PROBE > $DIR/said.$TORCHELASTIC_RESTART_COUNT.$RANK && [ $TORCHELASTIC_RESTART_COUNT = 1 ]", 3);
  options.max_restarts = 1;
  LauncherProcess launcher(options);
  const auto result = launcher.result();
  CHECK_MESSAGE(result.exit_code == 0, result.message);
  for (const std::string generation : {"0", "1"})
    for (const std::string rank : {"0", "1", "2"})
      CHECK(scripts.content("said." + generation + "." + rank) ==
            "npu_train: rank " + rank + " of 3, local " + rank + " of 3, generation " + generation + "\n");
}

TEST_CASE("the store outlives rank 0") {
  const Scripts scripts;
  LauncherProcess launcher(Scripts::options("$PROBE after-zero > $DIR/said.$RANK"));
  const auto result = launcher.result();
  CHECK_MESSAGE(result.exit_code == 0, result.message);
  CHECK(scripts.content("said.1") == "after rank 0 the store has: yes\n");
}

TEST_CASE("a store that dies ends the run") {
  const Scripts scripts;
  auto options = Scripts::options("here; while :; do sleep 0.01; done");
  options.grace = std::chrono::milliseconds(50);
  LauncherProcess launcher(options);
  REQUIRE(happens([&] { return scripts.exists("pid.0") && scripts.exists("pid.1"); }));
  for (const pid_t child : children_of(launcher.pid()))
    if (child != scripts.pid_of(0) && child != scripts.pid_of(1)) ::kill(child, SIGKILL);
  const auto result = launcher.result();
  CHECK(result.exit_code == 9);
  CHECK(has(result.message, "the store of the run" + kOnHost + "was killed by signal 9 (SIGKILL)"));
  CHECK(launcher.nothing_is_left());
}

TEST_CASE("a program that cannot be run, and options out of range") {
  LauncherProcess launcher({.command = {"/no/such/program"}});
  const auto result = launcher.result();
  CHECK(result.exit_code == 1002);
  CHECK(has(result.message, "'/no/such/program' cannot be run: No such file or directory"));
  CHECK(launcher.nothing_is_left());
  const auto refused = [](const LaunchOptions& options, const char* message) {
    const auto error = error_of([&] { launch_ranks(options); });
    CHECK(error.kind() == ErrorKind::Usage);
    CHECK_MESSAGE(has(error.what(), message), error.what());
  };
  refused({}, "no program");
  refused({.command = {"true"}, .nproc = 0}, "nproc is 0; allowed: 1 to 1024");
  refused({.command = {"true"}, .nproc = 1025}, "nproc is 1025");
  refused({.command = {"true"}, .max_restarts = -1}, "max_restarts is -1");
  refused({.command = {"true"}, .nproc = 2, .min_nproc = 3}, "min_nproc is 3; allowed: 0 to nproc, which is 2");
}
