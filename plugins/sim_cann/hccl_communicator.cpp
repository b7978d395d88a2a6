// Messages between ranks. A thread reads what other ranks send; the threads of streams write.
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "hccl.hpp"

namespace sim_cann {
namespace {

constexpr size_t kMostAsked = 1 << 16;  // limit of requests that are stored; no program has so many operations in progress

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

bool read_fully(int fd, void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::recv(fd, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

Communicator::Communicator(std::string its_name, int its_rank, std::vector<Socket> sockets, int milliseconds)
    : name(std::move(its_name)),
      rank(its_rank),
      size(static_cast<int>(sockets.size())),
      milliseconds_(milliseconds),
      sockets_(std::move(sockets)),
      left_(sockets_.size()),
      sent_(sockets_.size()),
      received_(sockets_.size()) {
  for (int r = 0; r < size; ++r) writers_.push_back(std::make_unique<std::mutex>());
  reader_ = std::thread([this] { read_messages(); });
}

uint64_t Communicator::next_collective() {
  const std::lock_guard lock(mutex_);
  return collectives_++;
}
uint64_t Communicator::next_sent(int peer) {
  const std::lock_guard lock(mutex_);
  return sent_[static_cast<size_t>(peer)]++;
}
uint64_t Communicator::next_received(int peer) {
  const std::lock_guard lock(mutex_);
  return received_[static_cast<size_t>(peer)]++;
}

std::string Communicator::error() {
  const std::lock_guard lock(mutex_);
  return error_;
}

Communicator::Header Communicator::make(Kind kind, const Tag& tag, size_t bytes, const std::string& text) {
  Header out{.kind = kind, .step = tag.step, .between_two = tag.between_two ? 1U : 0U, .number = tag.number, .bytes = bytes};
  text.copy(out.text, sizeof out.text - 1);
  return out;
}

// Waits until `done`, until the communicator has an error, or until the time limit for `peer` has passed.
template <class Done>
void Communicator::wait_for(std::unique_lock<std::mutex>& lock, const std::string& what, int peer, const Done& done) {
  const auto ready = [&] { return !error_.empty() || done() || left_[static_cast<size_t>(peer)]; };
  std::string why;
  if (milliseconds_ < 0) {
    changed_.wait(lock, ready);
  } else if (!changed_.wait_for(lock, std::chrono::milliseconds(milliseconds_), ready)) {
    why = rank_text(rank) + " waited " + std::to_string(milliseconds_ / 1000) + " s for " + rank_text(peer) + " in " + what +
          ", and timed out (HCCL_EXEC_TIMEOUT)";
  }
  if (why.empty() && error_.empty() && !done())
    why = rank_text(peer) + " has left the communicator, and " + rank_text(rank) + " calls " + what;
  if (!why.empty()) {
    lock.unlock();
    fail(why);
    lock.lock();
  }
  if (!error_.empty()) throw std::runtime_error(error_);
}

void Communicator::exchange(const std::string& what, const std::vector<Message>& sends, const std::vector<Message>& receives) {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (!error_.empty()) throw std::runtime_error(error_);
      for (const Message& m : receives)
        if (m.peer != rank) expected_[{m.peer, m.tag}] = m;
    }
    run(what, sends, receives);
  } catch (...) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !reading_; });  // the caller may free the memory of a message after this
    throw;
  }
}

void Communicator::run(const std::string& what, const std::vector<Message>& sends, const std::vector<Message>& receives) {
  for (const Message& m : receives)
    if (m.peer != rank) write_all(what, m.peer, make(Kind::Ready, m.tag, m.bytes, what), nullptr);
  for (const Message& m : sends)
    if (m.peer != rank) send(what, m);
  std::unique_lock lock(mutex_);
  for (const Message& m : receives) wait_for(lock, what, m.peer, [&] { return !expected_.contains({m.peer, m.tag}); });
}

void Communicator::send(const std::string& what, const Message& m) {
  Header theirs;
  {
    std::unique_lock lock(mutex_);
    const Key key{m.peer, m.tag};
    wait_for(lock, what, m.peer, [&] { return asked_.contains(key); });
    theirs = asked_[key];
    asked_.erase(key);
  }
  const Header own = make(Kind::Data, m.tag, m.bytes, what);
  if (std::strcmp(theirs.text, own.text) != 0 || theirs.bytes != own.bytes) {
    fail(rank_text(rank) + " calls " + own.text + " (" + std::to_string(own.bytes) + " bytes to " + rank_text(m.peer) + "), which calls " +
         theirs.text + " (" + std::to_string(theirs.bytes) + " bytes): all ranks must make the same calls in the same order");
    throw std::runtime_error(error());
  }
  write_all(what, m.peer, own, m.at);
}

// Returns false if the other rank does not read, or has ended.
bool Communicator::write(int peer, const void* from, size_t bytes) {
  const int fd = sockets_[static_cast<size_t>(peer)].fd();
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t done = ::send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done > 0) {
      at += done;
      bytes -= static_cast<size_t>(done);
    } else if (done < 0 && errno == EAGAIN) {
      pollfd wait{fd, POLLOUT, 0};
      if (::poll(&wait, 1, static_cast<int>(milliseconds_)) == 0) return false;
    } else if (done < 0 && errno != EINTR) {
      return false;
    }
  }
  return true;
}

void Communicator::write_all(const std::string& what, int peer, const Header& header, const void* from) {
  {
    const std::lock_guard lock(*writers_[static_cast<size_t>(peer)]);
    if (write(peer, &header, sizeof header) && (from == nullptr || write(peer, from, header.bytes))) return;
  }
  fail(rank_text(peer) + " has ended or does not read, in " + what);
  throw std::runtime_error(error());
}

// Notifies each other rank, unless a message to it is being written, and ends all connections.
void Communicator::end_connections(const Header& header) {
  for (size_t peer = 0; peer < sockets_.size(); ++peer) {
    if (sockets_[peer].fd() < 0) continue;
    if (const std::unique_lock lock(*writers_[peer], std::try_to_lock); lock.owns_lock())
      ::send(sockets_[peer].fd(), &header, sizeof header, MSG_NOSIGNAL | MSG_DONTWAIT);
    ::shutdown(sockets_[peer].fd(), SHUT_RDWR);
  }
  changed_.notify_all();
}

void Communicator::fail(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_.empty()) return;
    error_ = why;
  }
  end_connections(make(Kind::Failed, {}, 0, why));
}

void Communicator::peer_ended(int peer) {
  bool left = false;
  {
    const std::lock_guard lock(mutex_);
    left = left_[static_cast<size_t>(peer)] || ending_;
  }
  if (!left) fail(rank_text(peer) + " has ended");
}

bool Communicator::read_data(int peer, const Header& header) {
  const Key key{peer, {header.number, header.step, header.between_two != 0}};
  Message to;
  {
    const std::lock_guard lock(mutex_);
    const auto at = expected_.find(key);
    if (!error_.empty() || at == expected_.end() || at->second.bytes != header.bytes) return false;
    to = at->second;
    reading_ = true;
  }
  const bool done = read_fully(sockets_[static_cast<size_t>(peer)].fd(), to.at, to.bytes);
  {
    const std::lock_guard lock(mutex_);
    reading_ = false;
    if (done) expected_.erase(key);
  }
  changed_.notify_all();
  return done;
}

// Returns false when the connection has ended.
bool Communicator::read_one(int peer) {
  Header header;
  if (!read_fully(sockets_[static_cast<size_t>(peer)].fd(), &header, sizeof header)) return false;
  header.text[sizeof header.text - 1] = '\0';
  if (header.kind == Kind::Data) return read_data(peer, header);
  if (header.kind == Kind::Failed) {
    fail(header.text);
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    if (header.kind == Kind::Left) left_[static_cast<size_t>(peer)] = true;
    if (header.kind == Kind::Ready && asked_.size() < kMostAsked)
      asked_[{peer, {header.number, header.step, header.between_two != 0}}] = header;
  }
  changed_.notify_all();
  return header.kind == Kind::Ready;
}

void Communicator::read_messages() {
  std::vector<pollfd> waits;
  for (const Socket& socket : sockets_) waits.push_back({socket.fd(), POLLIN, 0});  // poll() ignores this rank's own socket, which is -1
  for (size_t open = sockets_.size() - 1; open > 0;) {
    if (::poll(waits.data(), waits.size(), -1) < 0) continue;
    for (int peer = 0; peer < size; ++peer) {
      pollfd& wait = waits[static_cast<size_t>(peer)];
      if (wait.fd < 0 || wait.revents == 0 || read_one(peer)) continue;
      wait.fd = -1;
      --open;
      peer_ended(peer);
    }
  }
}

void Communicator::close() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(ending_, true)) return;
    if (error_.empty()) error_ = rank_text(rank) + " has destroyed the communicator";
  }
  end_connections(make(Kind::Left, {}, 0, ""));
  if (reader_.joinable()) reader_.join();
}

}  // namespace sim_cann
