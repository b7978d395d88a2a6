#include <atomic>
#include <filesystem>

#include "core/log_output.hpp"
#include "core/spdlog_writers.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/message_text.hpp"

namespace npu_train {
namespace {

const char* word(LogLevel level) {
  switch (level) {
    case LogLevel::Debug:
      return "debug: ";
    case LogLevel::Info:
      return "";
    case LogLevel::Warning:
      return "warning: ";
    case LogLevel::Error:
      return "error: ";
  }
  return "";
}

std::string line_of(LogLevel level, std::string_view message) { return word(level) + detail::visible_lines(message); }

[[noreturn]] void no_log(const std::string& file, const std::string& cause) {
  throw Error(ErrorKind::Checkpoint, "log", file + ": cannot be opened for writing: " + cause,
              "make the folder first, or write to another one");
}

detail::LineWriter open_log(const std::string& file, const LogFileLimits& limits) {
  check(limits.max_bytes > 0, ErrorKind::Usage, "make_file_sink", "max_bytes is 0; it must be positive");
  const auto folder = std::filesystem::path(file).parent_path();
  std::error_code none;
  if (!folder.empty() && !std::filesystem::is_directory(folder, none)) no_log(file, "there is no such folder");  // spdlog would create it
  try {
    return detail::rotating_file_writer(file, limits.max_bytes, limits.older_files);
  } catch (const std::exception& e) {
    no_log(file, e.what());
  }
}

}  // namespace

LogSink make_standard_sink(LogLevel least) {
  return [least, write = detail::standard_error_writer()](LogLevel level, std::string_view message) {
    if (level >= least) write(line_of(level, message));
  };
}

LogSink make_file_sink(const std::string& file, LogLevel least, const LogFileLimits& limits) {
  const auto failed = std::make_shared<std::atomic<bool>>(false);
  return [file, least, failed, write = open_log(file, limits)](LogLevel level, std::string_view message) {
    if (level < least) return;
    try {
      write(line_of(level, message));
    } catch (const std::exception& e) {
      // The file accepts no more lines, so they are lost; the other sinks report this once.
      if (!failed->exchange(true))
        detail::warn_about_sink(str_cat("[log] ", file, ": a line cannot be written: ", e.what(), "; hint: free some space on its disk"));
    }
  };
}

}  // namespace npu_train
