#include "npu_train/core/log.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "npu_train/core/append_file.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/visible_text.hpp"

namespace npu_train {
namespace {

struct Output {
  std::recursive_mutex busy;  // held while the sink runs, so that a sink that is taken away is not running any more
  LogSink sink;
  std::vector<std::shared_ptr<LogSink>> tees;
  std::vector<std::string> about_sinks;  // warnings about a sink that came while it ran
  std::atomic<bool> on = false;

  void set_on() { on = sink || !tees.empty(); }
};

// Never destroyed: threads of the host program may log while it ends.
Output& output() {
  static auto* const out = new Output;
  return *out;
}

thread_local bool inside_sink = false;

const char* word(LogLevel level) {
  switch (level) {
    case LogLevel::Debug:
      return "debug";
    case LogLevel::Info:
      return "info";
    case LogLevel::Warning:
      return "warning";
    case LogLevel::Error:
      return "error";
  }
  return "?";
}

std::string line_of(LogLevel level, std::string_view message) {
  return (level == LogLevel::Info ? "" : std::string(word(level)) + ": ") + detail::visible_lines(message) + "\n";
}

std::string time_stamp() {
  const auto now = std::chrono::system_clock::now();
  const auto seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char text[40];
  const auto used = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  std::snprintf(text + used, sizeof text - used, ".%03d", static_cast<int>(ms));
  return text;
}

/// A file that takes no more lines costs these lines; the other sinks report it, once.
struct FileSink {
  explicit FileSink(const std::string& path) : file(path) {}
  AppendFile file;
  std::atomic<bool> failed = false;

  void write(const std::string& line) {
    try {
      file.write(line);
    } catch (const Error& e) {
      if (failed.exchange(true)) return;
      if (inside_sink)
        output().about_sinks.emplace_back(e.what());
      else
        log(LogLevel::Warning, e.what());
    }
  }
};

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
  if (!out.on.load(std::memory_order_relaxed) || inside_sink) return;  // a sink that logs would call itself for ever
  const std::lock_guard lock(out.busy);
  const auto sink = out.sink;  // copies: a sink may take itself away
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
  for (const auto& tee : tees) pass(*tee);
  inside_sink = false;
  for (const auto& warning : std::exchange(out.about_sinks, {})) log(LogLevel::Warning, warning);
}

void warn_once(const std::string& key, const std::string& message) {
  static auto* const mutex = new std::mutex;
  static auto* const said = new std::set<std::string>;
  if (!output().on.load()) return;  // nobody would have read it
  {
    const std::lock_guard lock(*mutex);
    if (!said->insert(key).second) return;
  }
  log(LogLevel::Warning, message);
}

ScopedLogTee::ScopedLogTee(LogSink sink) {
  if (!sink) return;
  sink_ = std::make_shared<LogSink>(std::move(sink));
  auto& out = output();
  const std::lock_guard lock(out.busy);
  out.tees.push_back(sink_);
  out.set_on();
}

ScopedLogTee::~ScopedLogTee() {
  if (!sink_) return;
  auto& out = output();
  const std::lock_guard lock(out.busy);
  std::erase(out.tees, sink_);
  out.set_on();
}

LogSink make_standard_sink(LogLevel least) {
  return [least](LogLevel level, std::string_view message) {
    if (level < least) return;
    const auto line = line_of(level, message);
    std::fwrite(line.data(), 1, line.size(), stderr);
  };
}

LogSink make_file_sink(const std::string& file, LogLevel least) {
  const auto out = std::make_shared<FileSink>(file);
  return [out, least](LogLevel level, std::string_view message) {
    if (level >= least) out->write(time_stamp() + " " + line_of(level, message));
  };
}

}  // namespace npu_train
