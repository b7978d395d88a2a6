#include "dist/heartbeats.hpp"

#include <algorithm>
#include <cstdlib>
#include <future>
#include <new>
#include <utility>

namespace npu_train::detail {

// Format: "17 w step 12, reduction", that is number, state and work.
struct Beat {
  std::string number{}, work{};
  char state = '-';  // -: works, w: waits for others, x: has failed

  std::string str() const { return number + " " + state + " " + work; }
  static Beat of(const std::string& text) {
    const auto space = text.find(' ');
    if (space == std::string::npos || space + 3 > text.size()) return {};
    return {.number = text.substr(0, space), .work = text.substr(space + 3), .state = text[space + 1]};
  }
};

static constexpr std::chrono::seconds kPatience{2};  // grace period for a store that does not answer

struct Heartbeats::State {
  State(Store s, std::chrono::milliseconds i) : store(std::move(s)), interval(i) {}

  const Store store;
  const std::chrono::milliseconds interval;
  std::mutex mutex;
  std::condition_variable ends;
  bool ended = false;
  Beat own{.work = "start"};

  void beat() {
    std::unique_lock lock(mutex);
    for (uint64_t n = 1; !ended; ++n) {
      own.number = std::to_string(n);
      const auto text = own.str();
      lock.unlock();
      try {
        store.write(text);
      } catch (...) {
        return;  // the store has ended: other ranks see that the heartbeats of this rank stop
      }
      lock.lock();
      ends.wait_for(lock, interval, [&] { return ended; });
    }
  }
};

Heartbeats::Heartbeats(Store store, std::chrono::milliseconds interval) : state_(std::make_shared<State>(std::move(store), interval)) {
  thread_ = std::thread([state = state_] { state->beat(); });
}

Heartbeats::~Heartbeats() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ended = true;
  }
  state_->ends.notify_all();
  thread_.join();
}

void Heartbeats::leak() noexcept {
  if (!thread_.joinable()) return;
  (void)new (std::nothrow) std::shared_ptr<State>(state_);
  thread_.detach();
}

void Heartbeats::does(std::string work) {
  const std::lock_guard lock(state_->mutex);
  state_->own.work = std::move(work);
}

void Heartbeats::waits(bool for_others) {
  const std::lock_guard lock(state_->mutex);
  if (state_->own.state != 'x') state_->own.state = for_others ? 'w' : '-';
}

void Heartbeats::fails() {
  const std::lock_guard lock(state_->mutex);
  state_->own.state = 'x';
}

std::string Heartbeats::late_ranks() const {
  // Reads the store in a separate thread, since a store whose host hangs does not answer.
  std::promise<std::string> promise;
  auto answer = promise.get_future();
  std::thread([state = state_, promise = std::move(promise)]() mutable {
    try {
      const auto before = state->store.read();
      std::this_thread::sleep_for(3 * state->interval);
      const auto after = state->store.read();
      std::string out;
      for (size_t r = 0; r < after.size(); ++r) {
        const auto beat = Beat::of(after[r]);
        const bool lives = beat.number != Beat::of(before[r]).number;
        if (beat.state == 'x' || (lives && beat.state == 'w')) continue;
        out += (out.empty() ? "" : "; ") + std::string("rank ") + std::to_string(r) +
               (lives ? " is alive and does not wait for the others: " : " gives no sign of life, last: ") +
               (beat.work.empty() ? "start" : beat.work);
      }
      promise.set_value(out);
    } catch (...) {
      promise.set_value("");
    }
  }).detach();
  if (answer.wait_for(3 * state_->interval + kPatience) != std::future_status::ready)
    return "the store does not answer: the process that serves it hangs";
  return answer.get();
}

}  // namespace npu_train::detail
