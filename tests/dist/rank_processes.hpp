// Ranks that are processes: runs tests/dist/program once for each.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "npu_train/core/process.hpp"

namespace npu_train::testing {

/// A port of the loopback interface that no other program gets in its scope. It is bound, but not listened to, so that a server that sets
/// SO_REUSEADDR can take it.
class ReservedPort {
 public:
  ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(socket_, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
        ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0)
      port_ = ntohs(address.sin_port);
  }
  ~ReservedPort() { ::close(socket_); }
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;
  int port() const { return port_; }

 private:
  int socket_;
  int port_ = 0;
};

inline const std::string kRankProgram = NPU_TRAIN_BINARY_DIR "/tests/dist_rank";

/// Runs `command` on the first `started` of `ranks` ranks, all at the same time. Returns the results in rank order.
inline std::vector<CommandResult> run_ranks(int ranks, const std::vector<std::string>& command, int started = -1) {
  const ReservedPort port;
  if (started < 0) started = ranks;
  std::vector<CommandResult> results(static_cast<size_t>(started));
  std::vector<std::thread> threads;
  for (int r = 0; r < started; ++r)
    threads.emplace_back([&, r] {
      const auto n = std::to_string(ranks), rank = std::to_string(r);
      std::vector<std::string> words{"env",
                                     "RANK=" + rank,
                                     "WORLD_SIZE=" + n,
                                     "LOCAL_RANK=" + rank,
                                     "LOCAL_WORLD_SIZE=" + n,
                                     "MASTER_ADDR=127.0.0.1",
                                     "MASTER_PORT=" + std::to_string(port.port())};
      words.insert(words.end(), command.begin(), command.end());
      results[static_cast<size_t>(r)] = run_command(words, {.deadline = std::chrono::minutes(10)});
    });
  for (auto& t : threads) t.join();
  return results;
}

}  // namespace npu_train::testing
