// Heartbeats of all ranks in the store, which show which rank hangs and which one is only slow.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace npu_train::detail {

// A thread writes the heartbeat of this rank to the store at each interval: a counter, the current work, and whether the rank waits for
// others. A rank whose counter does not grow is stopped or has ended. A rank whose counter grows is late if it does not wait for others.
class Heartbeats {
 public:
  // Access to the store. Both functions may be called from any thread, and may throw or not return in time.
  struct Store {
    std::function<void(const std::string&)> write;   // writes the heartbeat of this rank
    std::function<std::vector<std::string>()> read;  // reads the heartbeats of all ranks; "" for a rank without one
  };

  Heartbeats(Store store, std::chrono::milliseconds interval);
  ~Heartbeats();  // waits for the thread
  Heartbeats(const Heartbeats&) = delete;
  Heartbeats& operator=(const Heartbeats&) = delete;

  // Sets the current work of this rank, for example: "step 12, forward and backward".
  void does(std::string work);
  void waits(bool for_others);
  void fails();  // late_ranks() then skips this rank, because the cause is on another one

  // Returns a sentence for each rank for which the others wait, or "" if the store cannot be read. Takes three intervals.
  std::string late_ranks() const;

  // Detaches the thread, and leaks its state.
  void leak() noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace npu_train::detail
