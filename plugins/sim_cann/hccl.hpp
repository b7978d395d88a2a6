// Common parts of libhccl.so: ranks that exchange memory. Each rank is a process with its own devices; Unix sockets connect them.
#pragma once

#include <compare>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace sim_cann {

// Codes of HCCL that sim_cann returns.
enum HcclCode : int { kHcclSuccess = 0, kHcclParameter = 1, kHcclPointer = 2, kHcclNotSupported = 5, kHcclConnect = 11, kHcclRemote = 21 };

/// A file descriptor that is closed with its owner.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

/// Size of HcclRootInfo, which identifies the meeting point of the ranks of a communicator.
inline constexpr size_t kRootInfoBytes = 4108;
/// Opens a meeting point. A thread serves it until all ranks have arrived, or for HCCL_CONNECT_TIMEOUT seconds.
void open_root(char* info);
/// Meets the other ranks. Returns a socket for each rank; that of this rank is empty. Throws std::runtime_error with the reason.
std::vector<Socket> meet_ranks(const char* info, int size, int rank, int device);

/// Identifies a message: by the number of its collective in the communicator, or by its number among the messages between two ranks.
struct Tag {
  uint64_t number = 0;
  uint32_t step = 0;  // step of the collective
  bool between_two = false;
  auto operator<=>(const Tag&) const = default;
};

struct Message {
  int peer = 0;
  Tag tag{};
  void* at = nullptr;  // in host memory
  size_t bytes = 0;
};

/// The connections of a rank. Data is sent when its receiver has asked for it, and written directly to its destination without a buffer.
class Communicator {
 public:
  /// `milliseconds`: limit for an operation's wait for other ranks; negative: none.
  Communicator(std::string name, int rank, std::vector<Socket> sockets, int milliseconds);
  ~Communicator() { close(); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string name;
  const int rank, size;

  /// Return the number of the next operation. Operations are numbered in the order of the program's calls.
  uint64_t next_collective();
  uint64_t next_sent(int peer);
  uint64_t next_received(int peer);

  /// Sends and receives all messages at the same time. `what` must be equal at both ends: "HcclBroadcast float32[10], root 0". Throws
  /// std::runtime_error if a rank has ended, makes another call or is late; afterwards the communicator cannot be used.
  void exchange(const std::string& what, const std::vector<Message>& sends, const std::vector<Message>& receives);

  /// Returns why the communicator cannot be used; "" if it can.
  std::string error();
  /// Leaves the communicator: unfinished operations fail, and other ranks are notified.
  void close();

 private:
  enum class Kind : uint32_t { Ready = 1, Data, Left, Failed };
  struct Header {
    Kind kind{};
    uint32_t step = 0, between_two = 0;
    uint64_t number = 0, bytes = 0;
    char text[160] = {};
  };
  using Key = std::pair<int, Tag>;

  template <class Done>
  void wait_for(std::unique_lock<std::mutex>& lock, const std::string& what, int peer, const Done& done);
  void run(const std::string& what, const std::vector<Message>& sends, const std::vector<Message>& receives);
  void send(const std::string& what, const Message& message);
  bool write(int peer, const void* from, size_t bytes);
  void write_all(const std::string& what, int peer, const Header& header, const void* from);
  void end_connections(const Header& header);
  void fail(const std::string& why);
  void read_messages();
  bool read_one(int peer);
  bool read_data(int peer, const Header& header);
  void peer_ended(int peer);
  static Header make(Kind kind, const Tag& tag, size_t bytes, const std::string& text);

  const int milliseconds_;
  std::vector<Socket> sockets_;
  std::vector<std::unique_ptr<std::mutex>> writers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Header> asked_;      // requests of other ranks for data of this one
  std::map<Key, Message> expected_;  // data that this rank has requested
  std::vector<bool> left_;
  bool reading_ = false, ending_ = false;
  std::string error_;
  uint64_t collectives_ = 0;
  std::vector<uint64_t> sent_, received_;
  std::thread reader_;
};

}  // namespace sim_cann
