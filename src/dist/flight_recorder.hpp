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

  // Queued: this process has continued, and only its device still waits for the collective.
  enum class State { Begun, Queued, Finished };
  struct Entry {
    int64_t sequence = 0;  // number of the collective in this process
    std::string operation{}, call{};
    int64_t bytes = 0;  // size of the tensor that this rank passes to the collective
    State state = State::Begun;
  };

  // Records a collective, and returns its sequence number.
  int64_t begin(std::string operation, std::string call, int64_t bytes);
  void set(int64_t sequence, State state);
  // Marks this collective, and all that were queued before it, as finished.
  void device_reached(int64_t sequence);
  int64_t count() const;
  // Returns one line for each collective, the newest last: "17 all_to_all, bucket 2, 1,048,576 bytes: not finished".
  std::string str() const;

 private:
  mutable std::mutex mutex_;
  std::array<Entry, kKept> entries_;
  int64_t next_ = 0;
};

}  // namespace npu_train::detail
