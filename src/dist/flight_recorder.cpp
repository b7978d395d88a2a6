#include "dist/flight_recorder.hpp"

#include <algorithm>
#include <utility>

#include "npu_train/core/text.hpp"

namespace npu_train::detail {

int64_t FlightRecorder::begin(std::string operation, std::string call, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  entries_[static_cast<size_t>(next_) % kKept] = {next_, std::move(operation), std::move(call), bytes, State::Begun};
  return next_++;
}

void FlightRecorder::set(int64_t sequence, State state) {
  const std::lock_guard lock(mutex_);
  auto& entry = entries_[static_cast<size_t>(sequence) % kKept];
  if (entry.sequence == sequence) entry.state = state;
}

void FlightRecorder::device_reached(int64_t sequence) {
  const std::lock_guard lock(mutex_);
  for (auto& entry : entries_)
    if (entry.state == State::Queued && entry.sequence <= sequence) entry.state = State::Finished;
}

int64_t FlightRecorder::count() const {
  const std::lock_guard lock(mutex_);
  return next_;
}

std::string FlightRecorder::str() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  for (auto i = std::max<int64_t>(0, next_ - static_cast<int64_t>(kKept)); i < next_; ++i) {
    const auto& e = entries_[static_cast<size_t>(i) % kKept];
    out += "  " + std::to_string(e.sequence) + " " + e.operation + (e.call.empty() ? "" : ", " + e.call) + ", " + with_commas(e.bytes) +
           " bytes: " +
           (e.state == State::Finished ? "finished"
            : e.state == State::Queued ? "queued on the device"
                                       : "not finished") +
           "\n";
  }
  return out;
}

}  // namespace npu_train::detail
