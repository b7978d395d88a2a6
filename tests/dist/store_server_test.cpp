#include "testing.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <csignal>
#include <vector>

#include "npu_train/dist/store_server.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

struct Listener {
  Listener() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    fd = ::socket(AF_INET, SOCK_STREAM, 0);
    REQUIRE(::bind(fd, any, size) == 0);
    REQUIRE(::listen(fd, 16) == 0);
    REQUIRE(::getsockname(fd, any, &size) == 0);
    port = ntohs(address.sin_port);
  }
  int fd = -1;
  uint16_t port = 0;
};

c10::intrusive_ptr<c10d::TCPStore> client_of(const Listener& listener) {
  c10d::TCPStoreOptions options;
  options.port = listener.port;
  options.waitWorkers = false;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

}  // namespace

TEST_CASE("a process serves the store to clients that come and go") {
  const Listener listener;
  const pid_t server = ::fork();
  if (server == 0) serve_store(listener.fd);
  ::close(listener.fd);
  const std::vector<uint8_t> value{1, 2, 3};
  client_of(listener)->set("key", value);
  CHECK(client_of(listener)->get("key") == value);
  CHECK(client_of(listener)->add("counter", 2) == 2);
  CHECK(client_of(listener)->add("counter", 3) == 5);
  ::kill(server, SIGTERM);
  int status = 0;
  REQUIRE(::waitpid(server, &status, 0) == server);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM));
}

TEST_CASE("a descriptor that is no socket") {
  const auto error = error_of([] { serve_store(-1); });
  CHECK(error.kind() == ErrorKind::Device);
  CHECK(has(error.what(), "descriptor -1 is no socket"));
}
