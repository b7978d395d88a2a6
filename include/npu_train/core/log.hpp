/// The log of the library: messages go to a sink that the program sets. Without a sink it is silent.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "npu_train/core/text.hpp"

namespace npu_train {

enum class LogLevel { Debug, Info, Warning, Error };

/// Receives messages from any thread; calls never overlap.
using LogSink = std::function<void(LogLevel, std::string_view message)>;

/// Sets the sink of the process and returns the previous one. An empty function silences the log.
LogSink set_log_sink(LogSink sink);

/// Sets a sink for a scope.
class ScopedLogSink {
 public:
  explicit ScopedLogSink(LogSink sink) : before_(set_log_sink(std::move(sink))) {}
  ~ScopedLogSink() { set_log_sink(std::move(before_)); }
  ScopedLogSink(const ScopedLogSink&) = delete;
  ScopedLogSink& operator=(const ScopedLogSink&) = delete;

 private:
  LogSink before_;
};

/// Adds a sink in its scope. If `run` is the number of a run, messages of other runs do not reach the sink. An empty sink has no effect.
class ScopedLogTee {
 public:
  explicit ScopedLogTee(LogSink sink, int64_t run = 0);
  ~ScopedLogTee();
  ScopedLogTee(const ScopedLogTee&) = delete;
  ScopedLogTee& operator=(const ScopedLogTee&) = delete;

 private:
  std::shared_ptr<LogSink> sink_;
};

/// In its scope, drops the messages of this thread's run, and the messages of threads without a run, such as autograd's threads. For trial
/// steps that the user did not request.
class ScopedLogSilence {
 public:
  ScopedLogSilence();
  ~ScopedLogSilence();
  ScopedLogSilence(const ScopedLogSilence&) = delete;
  ScopedLogSilence& operator=(const ScopedLogSilence&) = delete;

 private:
  int64_t run_;
};

/// Returns a new number for a run, so that runs in several threads of a process have separate logs.
int64_t new_log_run();
/// Returns the number of the run to which this thread's messages belong; 0 for a thread that belongs to no run, such as a thread of
/// libtorch or of the program.
int64_t log_run();
/// Assigns messages of this thread to `run` in its scope. A thread that works for a run begins with such a scope: `std::thread([run =
/// log_run()] { const ScopedLogRun scope(run); ... })`.
class ScopedLogRun {
 public:
  explicit ScopedLogRun(int64_t run);
  ~ScopedLogRun();
  ScopedLogRun(const ScopedLogRun&) = delete;
  ScopedLogRun& operator=(const ScopedLogRun&) = delete;

 private:
  int64_t before_;
};

void log(LogLevel level, std::string_view message);

template <class... Parts>
void log_info(const Parts&... parts) {
  log(LogLevel::Info, str_cat(parts...));
}
template <class... Parts>
void log_warning(const Parts&... parts) {
  log(LogLevel::Warning, str_cat(parts...));
}
template <class... Parts>
void log_debug(const Parts&... parts) {
  log(LogLevel::Debug, str_cat(parts...));
}

/// Logs a warning once per process for each `key`.
void warn_once(const std::string& key, const std::string& message);

/// Returns a sink that writes plain lines to stderr.
LogSink make_standard_sink(LogLevel least = LogLevel::Info);

/// Limits of a log's disk space.
struct LogFileLimits {
  size_t max_bytes = size_t{64} << 20;  ///< size of one file; a full one is renamed from train.log to train.1.log, and a new one begins
  size_t older_files = 3;               ///< number of renamed files to keep
};

/// Returns a sink that appends time-stamped lines to a file. Error(Checkpoint) if it cannot be opened. A line that cannot be written is
/// lost; the first such loss is reported to the other sinks.
LogSink make_file_sink(const std::string& file, LogLevel least = LogLevel::Info, const LogFileLimits& limits = {});

}  // namespace npu_train
