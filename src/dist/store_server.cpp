#include "npu_train/dist/store_server.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cerrno>
#include <cstring>
#include <exception>

#include "npu_train/core/error.hpp"
#include "npu_train/core/hold_signal.hpp"

namespace npu_train {
namespace {

/// Returns the port of a socket, which TCPStore needs in addition to the socket.
uint16_t port_of(int listen_fd) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  check(::getsockname(listen_fd, reinterpret_cast<sockaddr*>(&address), &size) == 0, ErrorKind::Device, "serve_store", "descriptor ",
        listen_fd, " is no socket: ", std::strerror(errno));
  return ntohs(address.sin_port);
}

}  // namespace

void serve_store(int listen_fd) {
  const HoldSignal hold(SIGPIPE);  // a client that ends while it is served must not end the server
  c10d::TCPStoreOptions options;
  options.port = port_of(listen_fd);
  options.isServer = true;
  options.waitWorkers = false;  // the constructor does not wait for the ranks, which start later
  options.masterListenFd = listen_fd;
  const auto store = [&] {
    try {
      return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    } catch (const std::exception& e) {
      throw Error(ErrorKind::Device, "serve_store", e.what(), "", std::current_exception());
    }
  }();
  while (true) ::pause();
}

}  // namespace npu_train
