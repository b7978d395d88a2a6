#include "testing.hpp"

#include "npu_train/core/hold_signal.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <thread>

using namespace npu_train;

namespace {

/// Returns the error of a write to a socket whose other side is closed.
int error_of_write() {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  ::close(ends[1]);
  const bool failed = ::write(ends[0], "x", 1) < 0;
  const int error = failed ? errno : 0;
  ::close(ends[0]);
  return error;
}

int g_seen = 0;

}  // namespace

TEST_CASE("a write to a closed connection fails, also in threads that were started meanwhile; then the program's handling is as before") {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) { ++g_seen; };
  REQUIRE(::sigaction(SIGPIPE, &action, &before) == 0);
  {
    const HoldSignal hold(SIGPIPE);
    const HoldSignal again(SIGPIPE);
    CHECK(error_of_write() == EPIPE);
    int of_thread = 0;
    std::thread([&] { of_thread = error_of_write(); }).join();
    CHECK(of_thread == EPIPE);
  }
  CHECK(g_seen == 0);
  CHECK(error_of_write() == EPIPE);
  CHECK(g_seen == 1);
  ::sigaction(SIGPIPE, &before, nullptr);
}
