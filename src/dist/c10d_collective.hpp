// State that the members of a c10d group share, and a collective in progress.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "dist/flight_recorder.hpp"
#include "dist/heartbeats.hpp"
#include "npu_train/core/clock.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

// Returns the first line of a transport's message, because a stack trace may follow. Adds the line with CANN's reason, if there is one;
// this line begins with a code: "EI0003: ...".
inline std::string message_of(const std::exception& e) {
  const std::string text = e.what();
  std::string out = text.substr(0, text.find('\n'));
  for (auto end = text.find('\n'); end != std::string::npos; end = text.find('\n', end + 1)) {
    const auto line = text.substr(end + 1, text.find('\n', end + 1) - end - 1);
    if (line.size() < 8 || line[0] != 'E' || line.find_first_not_of("0123456789", 2) != 6 || line[6] != ':') continue;
    return out + "; " + line;
  }
  return out;
}

// State that a group shares with its collectives. The collectives may outlive the group.
struct C10dShared {
  explicit C10dShared(std::string name) : who(std::move(name)) {}

  std::string who;  // "rank 1 of 4 (host)"
  FlightRecorder recorder;
  std::unique_ptr<Heartbeats> heartbeats;  // set when all ranks have met

  // Runs `wait`, which waits for other ranks.
  void wait_for_others(const std::string& operation, int64_t sequence, const std::function<void()>& wait,
                       FlightRecorder::State then = FlightRecorder::State::Finished) {
    if (heartbeats) heartbeats->waits(true);
    guarded(operation, wait);
    if (heartbeats) heartbeats->waits(false);
    recorder.set(sequence, then);
  }
  // Converts everything that libtorch and the transports throw to an Error.
  [[noreturn]] void failed(const std::string& operation, const std::exception& e) {
    if (heartbeats) heartbeats->fails();
    const auto cause = message_of(e);
    if (cause.find("Too many open files") != std::string::npos)
      throw Error(ErrorKind::Device, operation, who + " has no file descriptor left: " + cause,
                  "three are needed for each other rank: raise the limit where the ranks are started (ulimit -n)",
                  std::current_exception());
    // If a rank has ended, its connections are closed. If the wait timed out, a rank is silent or late, and the message names it.
    const bool timed_out = cause.find("imed out") != std::string::npos;
    const auto late = heartbeats && timed_out ? heartbeats->late_ranks() : "";
    log(LogLevel::Error, who + ": the last collectives of this process:\n" + recorder.str());
    throw Error(ErrorKind::Peer, operation, who + " lost contact with another rank: " + cause + (late.empty() ? "" : "; " + late),
                "the first error among the messages of all ranks is the cause", std::current_exception());
  }
  template <class Fn>
  auto guarded(const std::string& operation, Fn&& fn) -> decltype(fn()) {
    try {
      return fn();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& e) {
      failed(operation, e);
    }
  }
};

class C10dCollective final : public Collective {
 public:
  // `timed`: records the end of the work. Transports between devices are not timed: they complete the future as soon as the work is queued,
  // and the work itself ends with its event.
  C10dCollective(std::shared_ptr<C10dShared> shared, std::string operation, int64_t sequence, c10::intrusive_ptr<c10d::Work> work,
                 bool timed)
      : shared_(std::move(shared)), operation_(std::move(operation)), sequence_(sequence), work_(std::move(work)) {
    if (!timed)
      begin_ = 0;
    else if (const auto future = work_->getFuture())
      future->addCallback([end = end_](c10::ivalue::Future&) { *end = SteadyClock().now(); });
  }

  bool done() override {
    const bool done = work_->isCompleted();
    if (done && on_device() && work_->exception() == nullptr) shared_->recorder.device_reached(sequence_);
    return done;
  }
  ReductionTimes::Span span() const override { return {begin_, *end_}; }
  void wait() override {
    const auto then = on_device() ? FlightRecorder::State::Queued : FlightRecorder::State::Finished;
    shared_->wait_for_others(
        operation_, sequence_, [&] { work_->wait(); }, then);
  }

 private:
  bool on_device() const { return begin_ == 0; }

  std::shared_ptr<C10dShared> shared_;
  std::string operation_;
  int64_t sequence_;
  c10::intrusive_ptr<c10d::Work> work_;
  double begin_ = SteadyClock().now();
  std::shared_ptr<std::atomic<double>> end_ = std::make_shared<std::atomic<double>>(0);  // written by a thread of the transport
};

}  // namespace npu_train::detail
