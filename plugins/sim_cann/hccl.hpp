// Ranks that exchange memory: what the sources of libhccl.so share. Each rank is a process with its own devices; Unix sockets connect them.
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

// The codes of HCCL that are returned.
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

/// Bytes that identify the meeting point of the ranks of a communicator (HcclRootInfo).
inline constexpr size_t kRootInfoBytes = 4108;
/// Opens a meeting point, which a thread serves until all ranks have come, or HCCL_CONNECT_TIMEOUT seconds have passed.
void open_root(char* info);
/// Meets the other ranks: a socket for each (none for itself). Throws std::runtime_error, with what is wrong.
std::vector<Socket> meet_ranks(const char* info, int size, int rank, int device);

/// What a message belongs to: a collective by its number among those of the communicator, or a message between two ranks by its number.
struct Tag {
  uint64_t number = 0;
  uint32_t step = 0;  // of the collective
  bool between_two = false;
  auto operator<=>(const Tag&) const = default;
};

struct Message {
  int peer = 0;
  Tag tag{};
  void* at = nullptr;  // of the host
  size_t bytes = 0;
};

/// The connections of a rank. Data is sent when its receiver has asked for it, and is written where it belongs: nothing is buffered.
class Communicator {
 public:
  /// `milliseconds`: how long an operation waits for other ranks; negative: without an end.
  Communicator(std::string name, int rank, std::vector<Socket> sockets, int milliseconds);
  ~Communicator() { close(); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string name;
  const int rank, size;

  /// The numbers of the next operations, in the order in which the program calls them.
  uint64_t next_collective();
  uint64_t next_sent(int peer);
  uint64_t next_received(int peer);

  /// Sends and receives, all at once. `what` must be equal at both ends of a message: "HcclBroadcast float32[10], root 0".
  /// Throws std::runtime_error if a rank has ended, calls something else, or is late: the communicator is then of no use.
  void exchange(const std::string& what, const std::vector<Message>& sends, const std::vector<Message>& receives);

  /// Why the communicator is of no use; "" otherwise.
  std::string error();
  /// Leaves: operations that are not finished fail, and other ranks learn that this one has left.
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
  std::map<Key, Header> asked_;      // what other ranks are ready to receive from this one
  std::map<Key, Message> expected_;  // what this rank is ready to receive
  std::vector<bool> left_;
  bool reading_ = false, ending_ = false;
  std::string error_;
  uint64_t collectives_ = 0;
  std::vector<uint64_t> sent_, received_;
  std::thread reader_;
};

}  // namespace sim_cann
