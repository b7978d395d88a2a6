#include "tools/launch/store_process.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "npu_train/core/error.hpp"
#include "npu_train/dist/store_server.hpp"
#include "tools/launch/rank_processes.hpp"

namespace npu_train {
namespace {

constexpr const char* kStore = "launch";

struct Socket {
  ~Socket() {
    if (fd >= 0) ::close(fd);
  }
  int fd = -1;
};

/// Listens before any rank exists, so that no rank connects too early and no other program can take the port.
int listen_on_loopback(Socket& socket) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socket.fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool good = socket.fd >= 0 && ::bind(socket.fd, any, size) == 0 && ::listen(socket.fd, SOMAXCONN) == 0 &&
                    ::getsockname(socket.fd, any, &size) == 0;
  check(good, ErrorKind::Device, kStore, "no port of the loopback interface for the store: ", std::strerror(errno));
  return ntohs(address.sin_port);
}

/// Serves the store, and ignores stop signals, so that only the launcher ends it: after a signal to all processes of a job, ranks still
/// need the store to save.
[[noreturn]] void serve(int listen_fd) {
  for (int number = 1; number < NSIG; ++number)
    if (is_stop_signal(number)) std::signal(number, SIG_IGN);
  try {
    serve_store(listen_fd);
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    ::_exit(e.exit_code());
  }
}

}  // namespace

StoreProcess::StoreProcess(const SignalWait& signals) {
  Socket socket;
  port_ = listen_on_loopback(socket);
  const pid_t parent = ::getpid();
  child_ = ::fork();
  if (child_ == 0) {
    begin_child(parent, signals);
    serve(socket.fd);
  }
  check(child_ > 0, ErrorKind::Device, kStore, "the store could not be started: ", std::strerror(errno));
}

StoreProcess::~StoreProcess() { end(); }

void StoreProcess::end() {
  if (child_ <= 0) return;
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
  child_ = 0;
}

std::optional<RankEnd> StoreProcess::ended() {
  int status = 0;
  if (child_ <= 0 || ::waitpid(child_, &status, WNOHANG) != child_) return std::nullopt;
  child_ = 0;
  return end_of_status(0, status);
}

}  // namespace npu_train
