#include "npu_train/core/log.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <set>

#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

struct Output {
  std::recursive_mutex busy;  // held while the sink runs, so that a sink that is taken away is not running any more
  LogSink sink;
  std::atomic<bool> on = false;
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

}  // namespace

LogSink set_log_sink(LogSink sink) {
  auto& out = output();
  const std::lock_guard lock(out.busy);
  std::swap(out.sink, sink);
  out.on = static_cast<bool>(out.sink);
  return sink;
}

void log(LogLevel level, std::string_view message) {
  auto& out = output();
  if (!out.on.load(std::memory_order_relaxed) || inside_sink) return;  // a sink that logs would call itself for ever
  const std::lock_guard lock(out.busy);
  if (!out.sink) return;
  const auto sink = out.sink;  // the sink may take itself away
  inside_sink = true;
  try {
    sink(level, message);
  } catch (...) {
    // A broken log must not end a training run.
  }
  inside_sink = false;
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

LogSink make_standard_sink(const std::string& file, LogLevel least) {
  std::shared_ptr<std::FILE> out;
  if (!file.empty()) {
    out.reset(std::fopen(file.c_str(), "ae"), [](std::FILE* f) {
      if (f) std::fclose(f);
    });
    check(out != nullptr, ErrorKind::Checkpoint, "log", file, ": cannot be opened for writing: ", std::strerror(errno),
          "; hint: make the folder first, or write to another one");
  }
  return [out, least](LogLevel level, std::string_view message) {
    if (level < least) return;
    const std::string prefix = level == LogLevel::Info ? "" : std::string(word(level)) + ": ";
    const std::string line = prefix + std::string(message) + "\n";
    std::fwrite(line.data(), 1, line.size(), stderr);
    if (!out) return;
    const std::string stamped = time_stamp() + " " + line;
    std::fwrite(stamped.data(), 1, stamped.size(), out.get());
    if (level >= LogLevel::Warning) std::fflush(out.get());
  };
}

}  // namespace npu_train
