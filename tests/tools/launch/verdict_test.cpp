#include "testing.hpp"

#include <csignal>
#include <vector>

#include "tools/launch/verdict.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

RankEnd exited(int rank, int code) { return {.rank = rank, .signalled = false, .status = code}; }
RankEnd killed(int rank, int signal) { return {.rank = rank, .signalled = true, .status = signal}; }

Verdict verdict_of(const std::vector<RankEnd>& ends) {
  Verdict verdict(4, "node1");
  for (const auto& end : ends) verdict.add(end);
  return verdict;
}

}  // namespace

TEST_CASE("all ranks end with 0") {
  const auto verdict = verdict_of({exited(1, 0), exited(0, 0)});
  CHECK(!verdict.failed());
  CHECK(verdict.exit_code() == 0);
  CHECK(verdict.message().empty());
  CHECK(verdict.lost() == 0);
  CHECK(!verdict.may_restart());
}

TEST_CASE("the code is the first one that is not a victim's") {
  struct Row {
    std::vector<RankEnd> ends;
    int code;
    const char* message;
    int lost;
    bool restart;
  };
  const Row rows[] = {
      {{exited(0, 5), exited(1, 9)}, 5, "rank 0 of 4 on host node1 ended with exit code 5", 1, false},
      {{exited(1, 9), exited(0, 5)}, 5, "rank 0 of 4 on host node1 ended with exit code 5", 1, false},
      {{exited(0, 0), exited(2, 8), exited(3, 3)}, 8, "rank 2 of 4 on host node1 ended with exit code 8", 2, true},
      {{exited(1, 2), exited(0, 2)}, 2, "rank 1 of 4 on host node1 ended with exit code 2", 2, false},
      {{exited(1, 7)}, 7, "rank 1 of 4 on host node1 ended with exit code 7", 1, false},
      {{exited(3, 9), exited(1, 9)}, 9, "rank 3 of 4 on host node1 ended with exit code 9: it lost another rank", 0, true},
      {{exited(0, 9), killed(1, SIGSEGV)}, 9, "rank 1 of 4 on host node1 was killed by signal 11 (SIGSEGV)", 1, true},
      {{killed(2, SIGKILL), exited(0, 9)},
       9,
       "rank 2 of 4 on host node1 was killed by signal 9 (SIGKILL), as the system does when memory runs out",
       1,
       true},
      {{killed(1, SIGTERM)}, 9, "rank 1 of 4 on host node1 was killed by signal 15 (SIGTERM)", 1, true},
      {{killed(1, SIGABRT), exited(0, 1)},
       1,
       "rank 1 of 4 on host node1 was killed by signal 6 (SIGABRT); rank 0 of 4 on host node1 ended with exit code 1",
       2,
       true},
      {{exited(1, 139)}, 139, "rank 1 of 4 on host node1 ended with exit code 139", 1, true},  // from a shell whose program crashed
      {{killed(1, 63)}, 9, "rank 1 of 4 on host node1 was killed by signal 63", 1, true},
  };
  for (const auto& row : rows) {
    const auto verdict = verdict_of(row.ends);
    CHECK(verdict.failed());
    CHECK(verdict.exit_code() == row.code);
    CHECK(verdict.message() == row.message);
    CHECK(verdict.lost() == row.lost);
    CHECK(verdict.may_restart() == row.restart);
  }
}

TEST_CASE("a stop by the user is no failure of a rank") {
  Verdict verdict(3, "node1");
  verdict.stopped_by(SIGTERM);
  verdict.add(exited(0, 128 + SIGTERM));
  verdict.add(killed(1, SIGTERM));  // a program without a handler
  verdict.add(exited(2, 9));
  CHECK(verdict.failed());
  CHECK(verdict.exit_code() == 128 + SIGTERM);
  CHECK(verdict.message().empty());
  CHECK(!verdict.may_restart());
  verdict.add(exited(2, 6));  // the checkpoint could not be written
  CHECK(verdict.exit_code() == 6);
  CHECK(has(verdict.message(), "exit code 6"));
}

TEST_CASE("a rank that was stopped directly stops the run") {
  const auto verdict = verdict_of({exited(1, 128 + SIGUSR1), exited(0, 128 + SIGUSR1)});
  CHECK(verdict.exit_code() == 128 + SIGUSR1);
  CHECK(verdict.message().empty());
  CHECK(!verdict.may_restart());
}

TEST_CASE("a rank that the launcher ends is no failure") {
  Verdict verdict(3, "node1");
  verdict.add(exited(0, 3));
  verdict.ended_by(SIGTERM);
  verdict.add(exited(1, 128 + SIGTERM));
  verdict.ended_by(SIGKILL);
  verdict.add(killed(2, SIGKILL));
  CHECK(verdict.exit_code() == 3);
  CHECK(verdict.message() == "rank 0 of 3 on host node1 ended with exit code 3");
  CHECK(verdict.lost() == 1);
}

TEST_CASE("a second signal kills ranks that are being stopped") {
  Verdict verdict(1, "node1");
  verdict.stopped_by(SIGINT);
  verdict.ended_by(SIGKILL);
  verdict.add(killed(0, SIGKILL));
  CHECK(verdict.exit_code() == 128 + SIGINT);
  CHECK(verdict.message().empty());
}

TEST_CASE("without the store the run cannot continue") {
  Verdict verdict(2, "node1");
  verdict.add_store(killed(0, SIGBUS));
  CHECK(verdict.failed());
  CHECK(verdict.exit_code() == 9);
  CHECK(verdict.message() == "the store of the run on host node1 was killed by signal 7 (SIGBUS)");
  CHECK(!verdict.may_restart());
}
