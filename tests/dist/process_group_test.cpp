// Groups of processes over Gloo: agreement, and the error of each rank when another one fails.
#include "npu_train/dist/process_group.hpp"

#include "testing.hpp"

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "dist/rank_processes.hpp"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("agreements: texts of any length, sums in the order of ranks, flags, bits and broadcasts") {
  for (const auto& rank : run_ranks(3, {kRankProgram, "agreement"})) {
    REQUIRE_MESSAGE(rank.ok(), rank.output);
    // The sums are in rank order: 0 + 1e16 + 1e16 + 1e16; in fp32 (0.1 + 0.2) + 0.3.
    CHECK(rank.output == "from 0\n0- 700b 1400c \n30000000000000000 3 -30000000000000000\n1 5 0.600000024 5\n42\n");
  }
}

TEST_CASE("exchanges and gathers of more than the buffers of sockets hold, all at once") {
  for (const int ranks : {2, 3})
    for (const auto& rank : run_ranks(ranks, {kRankProgram, "large_messages"})) CHECK(rank.output == "all parts are right\n");
}

TEST_CASE("a process may have several groups, one after the other, also where rank 0 serves the store") {
  for (const auto& rank : run_ranks(2, {kRankProgram, "several_groups"})) {
    CHECK(rank.status == 0);
    CHECK(rank.output == "four groups\n");
  }
}

TEST_CASE("ranks that take different branches get an error that names both") {
  const auto ranks = run_ranks(2, {kRankProgram, "other_calls"});
  CHECK(ranks[0].status == 9);
  CHECK(ranks[1].status == 9);
  CHECK(has(ranks[0].output, "is in 'from_main' and rank 1 is in 'sums'"));
  CHECK(has(ranks[1].output, "is in 'sums' and rank 0 is in 'from_main'"));
}

TEST_CASE("dist.debug names the rank whose collective differs; equal ones have the results that they have without it") {
  for (const auto& rank : run_ranks(3, {kRankProgram, "other_sizes", "debug=1"})) {
    CHECK(rank.status == 9);
    CHECK(has(rank.output, "rank 1 calls 'all_to_all Float [8]' and rank 0 'all_to_all Float [4]'"));
  }
  const auto plain = run_ranks(2, {kRankProgram, "gradients"}), checked = run_ranks(2, {kRankProgram, "gradients", "debug=1"});
  REQUIRE_MESSAGE(checked[0].ok(), checked[0].output);
  CHECK(checked[0].output == plain[0].output);
  CHECK(checked[1].output == plain[1].output);
}

TEST_CASE("the threads of a group, of its parts and of its store survive a write to a rank that has died: they block SIGPIPE") {
  const auto all_threads = [] {
    std::set<std::string> out;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) out.insert(thread.path().filename().string());
    return out;
  };
  const auto before = all_threads();
  const ReservedPort port;
  const auto group = make_process_group({.launcher = "test", .host = "127.0.0.1", .port = port.port(), .serves_store = true}, {});
  const auto part = group->subgroup({0});
  part->all_reduce(at::ones({3}))->wait();
  int new_threads = 0;
  for (const auto& id : all_threads()) {
    if (before.count(id) != 0) continue;
    ++new_threads;
    std::stringstream status;
    status << std::ifstream("/proc/self/task/" + id + "/status").rdbuf();
    const auto text = status.str();
    const auto blocked = std::stoull(text.substr(text.find("SigBlk:") + 7), nullptr, 16);
    CHECK_MESSAGE((blocked >> (SIGPIPE - 1) & 1) == 1, text);
  }
  CHECK(new_threads >= 12);  // two threads for each of the six sequences
  sigset_t own{};
  pthread_sigmask(SIG_SETMASK, nullptr, &own);
  CHECK(sigismember(&own, SIGPIPE) == 0);
}

TEST_CASE("a rank that is killed or fails: the others end with Error(Peer), and show what they last did") {
  for (const char* how : {"how=kill", "how=throw"})
    for (const int lost : {0, 1}) {
      CAPTURE(how);
      CAPTURE(lost);
      const auto ranks = run_ranks(3, {kRankProgram, "failure", how, "rank=" + std::to_string(lost)});
      for (size_t r = 0; r < ranks.size(); ++r) {
        if (static_cast<int>(r) == lost) continue;
        CHECK(ranks[r].status == 9);
        CHECK(has(ranks[r].output, "rank " + std::to_string(r) + " of 3"));
        CHECK(has(ranks[r].output, "lost contact with another rank"));
        CHECK(has(ranks[r].output, "agreement, parameters"));  // from the recorder of calls
        CHECK(has(ranks[r].output, "not finished"));
      }
      if (std::string(how) == "how=throw") CHECK(ranks[static_cast<size_t>(lost)].status == 3);
    }
}

TEST_CASE("a rank that is stopped: the others end at the timeout, and name it") {
  const auto ranks = run_ranks(3, {kRankProgram, "failure", "how=stop", "timeout=3"});
  for (const size_t r : {0, 1}) CHECK(ranks[r].status == 9);
  const auto all = ranks[0].output + ranks[1].output;  // the rank that times out second may lose the first one instead
  CHECK(has(all, "lost contact with another rank: "));
  CHECK(has(all, "; rank 2 gives no sign of life, last: "));
  CHECK(!has(all, "rank 0 gives"));
  CHECK(!has(all, "rank 1 gives"));
}

TEST_CASE("a rank that is late: it is alive, and named with what it does") {
  const auto ranks = run_ranks(3, {kRankProgram, "failure", "how=hang", "timeout=3"});
  for (const size_t r : {0, 1}) CHECK(ranks[r].status == 9);
  const auto all = ranks[0].output + ranks[1].output;
  CHECK(has(all, "; rank 2 is alive and does not wait for the others: step 2 of this process, forward and backward"));
  CHECK(!has(all, "sign of life"));
}

TEST_CASE("ranks wait for what rank 0 does first, longer than for a collective, and notice if it fails or dies") {
  const auto ranks = run_ranks(3, {kRankProgram, "main_first", "timeout=3"});
  REQUIRE_MESSAGE(ranks[0].ok(), ranks[0].output);
  CHECK(ranks[0].output == "rank 0 is done\nall are done\n");
  for (const size_t r : {1, 2}) CHECK(ranks[r].output == "all are done\n");
  for (const char* how : {"how=throw", "how=kill"}) {
    CAPTURE(how);
    const auto failed = run_ranks(3, {kRankProgram, "main_first", how, "timeout=3"});
    CHECK(failed[0].status != 0);
    for (const size_t r : {1, 2}) CHECK(failed[r].status == 9);
  }
}

TEST_CASE("ranks that never come are named") {
  const auto ranks = run_ranks(4, {kRankProgram, "agreement", "timeout=3"}, 2);
  for (const auto& rank : ranks) CHECK(rank.status == 9);
  CHECK(has(ranks[0].output, "ranks 2, 3 did not come"));  // the store ends with rank 0, possibly before rank 1 has looked
}

namespace {

CommandResult rank_at(int port, const char* rank) {
  return run_command({"env", std::string("RANK=") + rank, "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port),
                      kRankProgram, "agreement", "timeout=3"},
                     {.deadline = std::chrono::minutes(5)});
}

// A port to which the kernel accepts connections, although no program reads from them.
class SilentPort {
 public:
  SilentPort() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(socket_, 16) == 0);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~SilentPort() { ::close(socket_); }
  SilentPort(const SilentPort&) = delete;
  SilentPort& operator=(const SilentPort&) = delete;
  int port() const { return port_; }

 private:
  int socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int port_ = 0;
};

}  // namespace

TEST_CASE("a port that accepts connections and does not answer is an error after the timeout") {
  const SilentPort silent;
  const auto rank = rank_at(silent.port(), "1");
  CHECK(rank.status == 4);
  CHECK_MESSAGE(has(rank.output, ":" + std::to_string(silent.port()) + " accepts connections, but does not answer as a store within 3 s"),
                rank.output);
}

TEST_CASE("a program ends the wait for the store and for other ranks when it likes, which is no failure") {
  const SilentPort silent;
  const ReservedPort unused;
  for (const bool serves : {false, true}) {
    CAPTURE(serves);
    int asked = 0;
    const Launch launch{.rank = serves ? 0 : 1,
                        .world_size = 2,
                        .launcher = "test",
                        .host = "127.0.0.1",
                        .port = serves ? unused.port() : silent.port(),
                        .serves_store = serves};
    const auto error = error_of([&] { make_process_group(launch, {.timeout = 86400}, [&] { return ++asked > 3; }); });
    CHECK(is_stopped_wait(error));
    CHECK(asked == 4);
    CHECK(has(error.what(), "was stopped while it waited for the other ranks"));
  }
  CHECK_FALSE(is_stopped_wait(Error(ErrorKind::Peer, "process group", "a rank failed")));
}

TEST_CASE("a rank that waits for others ends as soon as its store has ended") {
  const ReservedPort port;
  const auto number = std::to_string(port.port());
  CommandResult waiting;
  std::thread thread([&] {
    waiting = run_command(
        {"env", "RANK=1", "WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + number, kRankProgram, "agreement", "timeout=86400"},
        {.deadline = std::chrono::minutes(5)});
  });
  {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(port.port());
    options.isServer = true;
    options.waitWorkers = false;
    options.timeout = std::chrono::minutes(5);
    c10d::TCPStore store("127.0.0.1", options);
    store.wait({"npu_train/0/group 1/here/1"});
  }
  thread.join();
  CHECK(waiting.status == 9);
  CHECK_MESSAGE(has(waiting.output, "the store at 127.0.0.1:" + number + " ended while the ranks met"), waiting.output);
  const auto launched = run_command({"env", "NPU_TRAIN_LAUNCHER=npu_train", "TORCHELASTIC_USE_AGENT_STORE=True", "RANK=1", "WORLD_SIZE=3",
                                     "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + number, kRankProgram, "agreement", "timeout=86400"},
                                    {.deadline = std::chrono::minutes(5)});
  CHECK(launched.status == 9);
  CHECK(has(launched.output, "connections are refused"));
}

TEST_CASE("a limit of descriptors that is too low for the ranks is this machine's fault, and the message says how many are needed") {
  const ReservedPort port;
  const auto start = [&](const std::string& limit) {
    return run_command({"env", "RANK=1", "WORLD_SIZE=400", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port.port()), "sh",
                        "-c", limit + "exec " + kRankProgram + " agreement timeout=1"},
                       {.deadline = std::chrono::minutes(5)});
  };
  const auto few = start("ulimit -n 300; ");
  CHECK(few.status == 4);
  CHECK_MESSAGE(has(few.output, "file descriptors, 3 for each of 399 other ranks; the limit is 300; hint: raise it"), few.output);
  CHECK(has(start("ulimit -n 2000; ").output, "cannot reach the store"));
}

TEST_CASE("a store that does not exist, a port in use, two processes of one rank") {
  const ReservedPort port;
  const auto alone = rank_at(port.port(), "1");
  CHECK(alone.status == 4);
  CHECK(has(alone.output, "rank 1 of 2"));
  CHECK_MESSAGE(has(alone.output, "cannot reach the store at 127.0.0.1:" + std::to_string(port.port())), alone.output);

  const SilentPort busy;
  const auto in_use = rank_at(busy.port(), "0");
  CHECK(in_use.status == 4);
  CHECK(has(in_use.output, "cannot serve the store at 127.0.0.1"));
  CHECK(has(in_use.output, "another program may use the port"));
}
