// The only source that includes spdlog. It renames the namespaces of spdlog and fmt, because a program that links this library may use
// other versions, and the linker would merge inline functions of equal names.
#define fmt npu_train_fmt
#define spdlog npu_train_spdlog
#define FMT_HEADER_ONLY
#define SPDLOG_PREVENT_CHILD_FD
#if !__has_include(<spdlog/fmt/bundled/core.h>)
#define SPDLOG_FMT_EXTERNAL 1
#endif
#include <spdlog/details/log_msg.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "core/spdlog_writers.hpp"
#include "npu_train/core/append_file.hpp"
#include "npu_train/core/hold_signal.hpp"

namespace npu_train::detail {
namespace {

LineWriter writer_to(std::shared_ptr<spdlog::sinks::sink> sink, const char* pattern) {
  sink->set_pattern(pattern);
  return [sink = std::move(sink)](const std::string& line) {
    const HoldSignal hold(SIGXFSZ);
    sink->log(spdlog::details::log_msg("npu_train", spdlog::level::info, line));
    sink->flush();
  };
}

}  // namespace

LineWriter standard_error_writer() { return writer_to(std::make_shared<spdlog::sinks::stderr_sink_mt>(), "%v"); }

LineWriter rotating_file_writer(const std::string& file, size_t max_bytes, size_t files) {
  return writer_to(std::make_shared<spdlog::sinks::rotating_file_sink_mt>(file, max_bytes, files), "%Y-%m-%d %H:%M:%S.%e %v");
}

}  // namespace npu_train::detail
