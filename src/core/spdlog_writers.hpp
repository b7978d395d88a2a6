// Destinations of log lines. Includes only standard headers: spdlog's fmt must not be included together with libtorch's.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace npu_train::detail {

// Writes a line, adds the line end, and flushes it to the operating system. Throws a std::exception if it cannot.
using LineWriter = std::function<void(const std::string& line)>;

LineWriter standard_error_writer();

// Appends time-stamped lines to `file`. A file that exceeds `max_bytes` is renamed to NAME.1.EXTENSION, an earlier NAME.1.EXTENSION to
// NAME.2.EXTENSION, and so on; the newest `files` renamed files are kept.
LineWriter rotating_file_writer(const std::string& file, size_t max_bytes, size_t files);

}  // namespace npu_train::detail
