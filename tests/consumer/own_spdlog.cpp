#include "own_spdlog.hpp"

#include <spdlog/fmt/fmt.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

void write_with_spdlog(const std::string& file, int level, const std::string& message) {
  static const auto logger = spdlog::basic_logger_mt("program", file);
  logger->set_pattern("[%l] %v");
  logger->log(level > 1 ? spdlog::level::warn : spdlog::level::info, message);
  logger->flush();
}

std::string formatted_with_fmt(double number) { return fmt::format("{:.3f}", number); }
