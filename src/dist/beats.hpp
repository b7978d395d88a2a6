// Signs of life of all ranks, in the store: which rank hangs, and which one is only slow.
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

// A thread writes the beat of this rank to the store at each interval: a number that grows, what the rank does, and whether it waits for
// others. A rank whose number does not grow is stopped or gone. Of the others, those are late that do not wait.
class Beats {
 public:
  // Both access the store, from any thread, and may throw or not return in time.
  struct Store {
    std::function<void(const std::string&)> write;   // the beat of this rank
    std::function<std::vector<std::string>()> read;  // those of all ranks; "" for one without a beat
  };

  Beats(Store store, std::chrono::milliseconds interval);
  ~Beats();  // waits for the thread
  Beats(const Beats&) = delete;
  Beats& operator=(const Beats&) = delete;

  // What this rank does from now on, for example: "step 12, forward and backward".
  void does(std::string work);
  void waits(bool for_others);
  void fails();  // what others wait for is elsewhere

  // Whom the others wait for, a sentence for each rank; reads the beats twice, three intervals apart. "" if the store cannot be read.
  std::string late_ranks() const;

  // Neither waits for the thread nor frees what it uses.
  void leak() noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace npu_train::detail
