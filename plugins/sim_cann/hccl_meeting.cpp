// The meeting of a communicator's ranks: a Unix socket in the abstract namespace, whose name is the root info. Each rank sends the name of
// its own socket to the thread that serves the meeting, and receives the names of all ranks' sockets.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>

#include "hccl.hpp"
#include "runtime.hpp"

namespace sim_cann {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kMagic = 0x73696d5f6863636cULL;
constexpr size_t kMaxRanks = 16;
using Name = std::array<char, 64>;

struct RootInfo {
  uint64_t magic = kMagic;
  Name name{};
};
static_assert(sizeof(RootInfo) <= kRootInfoBytes);

/// The message of a rank to the root.
struct Arrival {
  uint64_t magic = kMagic;
  uint32_t size = 0, rank = 0, device = 0;
  Name name{};
};
/// The reply of the root: the sockets of all ranks, or an error.
struct Answer {
  uint64_t magic = kMagic;
  std::array<char, 400> error{};
  std::array<Name, kMaxRanks> names{};
};

[[noreturn]] void throw_errno(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

// Returns the time limit, from HCCL's own variable.
std::chrono::seconds connect_timeout() {
  const char* set = std::getenv("HCCL_CONNECT_TIMEOUT");
  const int64_t seconds = set != nullptr ? std::strtol(set, nullptr, 10) : 120;
  return std::chrono::seconds(seconds > 0 ? seconds : 120);
}

int left(Clock::time_point until) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(ms < 0 ? 0 : ms);
}

socklen_t address_of(const Name& name, sockaddr_un& out) {
  out = {};
  out.sun_family = AF_UNIX;
  const size_t length = strnlen(name.data(), name.size());
  std::memcpy(out.sun_path + 1, name.data(), length);  // the leading 0 makes the name abstract: there is no file
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

Socket new_socket() {
  Socket out(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (out.fd() < 0) throw_errno("no socket");
  return out;
}

Socket listen_at(Name& name) {
  static std::atomic<int> number{0};
  std::random_device random;
  const std::string text = "sim_cann.hccl." + std::to_string(::getpid()) + "." + std::to_string(++number) + "." + std::to_string(random());
  text.copy(name.data(), name.size() - 1);
  Socket out = new_socket();
  sockaddr_un address;
  const socklen_t length = address_of(name, address);
  if (::bind(out.fd(), reinterpret_cast<const sockaddr*>(&address), length) != 0 || ::listen(out.fd(), kMaxRanks) != 0)
    throw_errno("no socket for other ranks");
  return out;
}

Socket connect_to(const Name& name, const std::string& whom) {
  Socket out = new_socket();
  sockaddr_un address;
  const socklen_t length = address_of(name, address);
  if (::connect(out.fd(), reinterpret_cast<const sockaddr*>(&address), length) != 0) throw_errno(whom + " cannot be reached");
  return out;
}

// Returns the process at the other end; its uid is -1 if it is unknown.
ucred peer_of(const Socket& socket) {
  ucred out{.pid = -1, .uid = static_cast<uid_t>(-1), .gid = static_cast<gid_t>(-1)};
  socklen_t length = sizeof out;
  ::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &out, &length);
  return out;
}

// Accepts a connection of a process of the same user. Returns an empty socket at the time limit.
Socket accept_from(const Socket& listener, Clock::time_point until) {
  while (true) {
    pollfd wait{listener.fd(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, left(until));
    if (ready == 0) return {};
    if (ready < 0) continue;
    Socket out(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (out.fd() >= 0 && peer_of(out).uid == ::getuid()) return out;
  }
}

template <class T>
bool put(const Socket& to, const T& value) {
  return ::send(to.fd(), &value, sizeof value, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof value);
}

template <class T>
bool get(const Socket& from, T& value, Clock::time_point until) {
  auto* at = reinterpret_cast<char*>(&value);
  for (size_t have = 0; have < sizeof value;) {
    pollfd wait{from.fd(), POLLIN, 0};
    if (::poll(&wait, 1, left(until)) == 0) return false;
    const ssize_t got = ::recv(from.fd(), at + have, sizeof value - have, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    have += got > 0 ? static_cast<size_t>(got) : 0;
  }
  return value.magic == kMagic;
}

/// The ranks that have arrived at a root.
struct Guests {
  std::array<Arrival, kMaxRanks> arrivals{};
  std::array<Socket, kMaxRanks> sockets;
  Socket refused;  // socket of a rank that contradicts the others, which ends the meeting
  uint32_t size = 0, count = 0;

  bool is_there(size_t rank) const { return sockets[rank].fd() >= 0; }

  // Adds a rank. Returns how it contradicts the ranks that have arrived; "" if it does not.
  std::string admit(const Arrival& one, Socket socket) {
    if (size == 0) size = one.size;
    std::string error;
    const std::string who = "rank " + std::to_string(one.rank);
    if (one.size != size) {
      error = who + " is one of " + std::to_string(one.size) + " ranks, and another one of " + std::to_string(size);
    } else if (one.rank >= size || size > kMaxRanks) {
      error = "there is no " + who + " of " + std::to_string(size);
    } else if (is_there(one.rank)) {
      error = "two processes are " + who;
    }
    for (size_t other = 0; other < kMaxRanks && error.empty(); ++other) {
      if (is_there(other) && arrivals[other].device == one.device)
        error = who + " and rank " + std::to_string(other) + " both use device " + std::to_string(one.device) + "; each needs its own";
    }
    if (error.empty()) {
      arrivals[one.rank] = one;
      sockets[one.rank] = std::move(socket);
    } else {
      refused = std::move(socket);
    }
    ++count;
    return error;
  }

  std::string missing() const {
    std::string out;
    for (size_t rank = 0; rank < size; ++rank)
      if (!is_there(rank)) out += (out.empty() ? "" : ", ") + std::to_string(rank);
    return out;
  }

  void answer(const std::string& error) const {
    Answer out;
    error.copy(out.error.data(), out.error.size() - 1);
    for (size_t rank = 0; rank < kMaxRanks; ++rank) out.names[rank] = arrivals[rank].name;
    // The root's own rank is answered last, because after an error its process ends, and this thread with it.
    for (const bool own : {false, true}) {
      for (const Socket& socket : sockets) send_to(socket, out, own);
      send_to(refused, out, own);
    }
  }

  static void send_to(const Socket& socket, const Answer& answer, bool own) {
    if (socket.fd() >= 0 && (peer_of(socket).pid == ::getpid()) == own) put(socket, answer);
  }
};

void serve_root(const Socket& listener) {
  const auto timeout = connect_timeout();
  const auto until = Clock::now() + timeout;
  Guests guests;
  std::string error;
  while (error.empty() && (guests.size == 0 || guests.count < guests.size)) {
    Socket socket = accept_from(listener, until);
    if (socket.fd() < 0) {
      error = "ranks that did not come within " + std::to_string(timeout.count()) + " s (HCCL_CONNECT_TIMEOUT): " + guests.missing();
      break;
    }
    Arrival one;
    if (get(socket, one, until)) error = guests.admit(one, std::move(socket));
  }
  guests.answer(error);
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

void open_root(char* info) {
  RootInfo out;
  auto listener = std::make_shared<Socket>(listen_at(out.name));
  std::memset(info, 0, kRootInfoBytes);
  std::memcpy(info, &out, sizeof out);
  std::thread([listener] { serve_root(*listener); }).detach();
}

std::vector<Socket> meet_ranks(const char* info, int size, int rank, int device) {
  RootInfo root;
  std::memcpy(&root, info, sizeof root);
  if (root.magic != kMagic) throw std::runtime_error("the root info is not one of HcclGetRootInfo");
  const auto until = Clock::now() + connect_timeout() + std::chrono::seconds(5);  // the root's limit is shorter, so its error arrives first
  Arrival own{.size = static_cast<uint32_t>(size), .rank = static_cast<uint32_t>(rank), .device = static_cast<uint32_t>(device)};
  const Socket listener = listen_at(own.name);
  const Socket to_root = connect_to(root.name, "the process that called HcclGetRootInfo");
  Answer answer;
  if (!put(to_root, own) || !get(to_root, answer, until)) throw std::runtime_error("the process that called HcclGetRootInfo has ended");
  if (answer.error[0] != '\0') throw std::runtime_error(answer.error.data());
  std::vector<Socket> out(static_cast<size_t>(size));
  for (int lower = 0; lower < rank; ++lower) {
    const auto at = static_cast<size_t>(lower);
    out[at] = connect_to(answer.names[at], "rank " + std::to_string(lower));
    if (!put(out[at], own)) throw std::runtime_error("rank " + std::to_string(lower) + " has ended");
  }
  for (int higher = rank + 1; higher < size; ++higher) {
    Socket socket = accept_from(listener, until);
    Arrival other;
    if (socket.fd() < 0 || !get(socket, other, until) || other.rank <= own.rank || other.rank >= own.size)
      throw std::runtime_error("a rank has ended while the ranks connected");
    out[other.rank] = std::move(socket);
  }
  return out;
}

}  // namespace sim_cann
