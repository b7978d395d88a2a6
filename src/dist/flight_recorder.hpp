// The last collectives of a process, for the message of an Error(Peer).
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>

namespace npu_train::detail {

class FlightRecorder {
 public:
  static constexpr size_t kKept = 64;

  // Queued: this process waits no more, but the device does.
  enum class State { Begun, Queued, Finished };
  struct Entry {
    int64_t sequence = 0;  // counts the collectives of the process
    std::string operation{}, call{};
    int64_t bytes = 0;  // that this rank gives
    State state = State::Begun;
  };

  // Returns the sequence number.
  int64_t begin(std::string operation, std::string call, int64_t bytes);
  void set(int64_t sequence, State state);
  // The device has finished this one, and with it all that was queued before.
  void device_reached(int64_t sequence);
  int64_t count() const;
  // One line each, the newest last: "17 all_to_all, bucket 2, 1,048,576 bytes: not finished".
  std::string str() const;

 private:
  mutable std::mutex mutex_;
  std::array<Entry, kKept> entries_;
  int64_t next_ = 0;
};

}  // namespace npu_train::detail
