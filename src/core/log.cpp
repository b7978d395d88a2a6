#include "npu_train/core/log.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "core/log_output.hpp"

namespace npu_train {
namespace {

struct Output {
  std::recursive_mutex busy;  // locked while a sink runs, so that a sink no longer runs once it has been removed
  LogSink sink;
  struct Tee {
    std::shared_ptr<LogSink> sink;
    int64_t run = 0;
    bool takes(int64_t of) const { return run == 0 || of == 0 || of == run; }
  };
  std::vector<Tee> tees;
  std::vector<int64_t> silent;           // runs that have a ScopedLogSilence
  std::vector<std::string> about_sinks;  // warnings about a sink that were logged while that sink ran
  std::atomic<bool> on = false;

  bool silences(int64_t run) const {
    return std::any_of(silent.begin(), silent.end(), [&](int64_t of) { return run == of || run == 0; });
  }
  void set_on() { on = sink || !tees.empty(); }
};

// Never destroyed: threads of the program may log while it exits.
Output& output() {
  static auto* const out = new Output;
  return *out;
}

thread_local bool inside_sink = false;
thread_local int64_t run_of_thread = 0;

}  // namespace

LogSink set_log_sink(LogSink sink) {
  auto& out = output();
  const std::lock_guard lock(out.busy);
  std::swap(out.sink, sink);
  out.set_on();
  return sink;
}

void log(LogLevel level, std::string_view message) {
  auto& out = output();
  if (!out.on.load(std::memory_order_relaxed) || inside_sink) return;  // a sink that logs would recurse without end
  const std::lock_guard lock(out.busy);
  if (out.silences(run_of_thread)) return;
  const auto sink = out.sink;  // a copy, because the sink may remove itself
  const auto tees = out.tees;
  inside_sink = true;
  const auto pass = [&](const LogSink& to) {
    try {
      if (to) to(level, message);
    } catch (...) {
      // A broken log must not end a training run.
    }
  };
  pass(sink);
  for (const auto& tee : tees)
    if (tee.takes(run_of_thread)) pass(*tee.sink);
  inside_sink = false;
  for (const auto& warning : std::exchange(out.about_sinks, {})) log(LogLevel::Warning, warning);
}

void warn_once(const std::string& key, const std::string& message) {
  static auto* const mutex = new std::mutex;
  static auto* const said = new std::set<std::string>;
  auto& out = output();
  if (!out.on.load()) return;  // without a sink, the warning would be lost
  {
    const std::lock_guard lock(out.busy);
    if (out.silences(run_of_thread)) return;
  }
  {
    const std::lock_guard lock(*mutex);
    if (!said->insert(key).second) return;
  }
  log(LogLevel::Warning, message);
}

ScopedLogTee::ScopedLogTee(LogSink sink, int64_t run) {
  if (!sink) return;
  sink_ = std::make_shared<LogSink>(std::move(sink));
  auto& out = output();
  const std::lock_guard lock(out.busy);
  out.tees.push_back({sink_, run});
  out.set_on();
}

ScopedLogTee::~ScopedLogTee() {
  if (!sink_) return;
  auto& out = output();
  const std::lock_guard lock(out.busy);
  std::erase_if(out.tees, [&](const auto& tee) { return tee.sink == sink_; });
  out.set_on();
}

ScopedLogSilence::ScopedLogSilence() : run_(run_of_thread) {
  auto& out = output();
  const std::lock_guard lock(out.busy);
  out.silent.push_back(run_);
}

ScopedLogSilence::~ScopedLogSilence() {
  auto& out = output();
  const std::lock_guard lock(out.busy);
  out.silent.erase(std::find(out.silent.begin(), out.silent.end(), run_));
}

int64_t new_log_run() {
  static std::atomic<int64_t> last = 0;
  return ++last;
}

int64_t log_run() { return run_of_thread; }

ScopedLogRun::ScopedLogRun(int64_t run) : before_(std::exchange(run_of_thread, run)) {}
ScopedLogRun::~ScopedLogRun() { run_of_thread = before_; }

namespace detail {

void warn_about_sink(const std::string& warning) {
  if (inside_sink)
    output().about_sinks.push_back(warning);
  else
    log(LogLevel::Warning, warning);
}

}  // namespace detail

}  // namespace npu_train
