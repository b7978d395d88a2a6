// The destinations of log lines. Includes std headers only: its source includes spdlog, whose fmt must not mix with that of libtorch.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace npu_train::detail {

// Writes a line, without its end, and hands it to the operating system. Throws a std::exception when it cannot.
using LineWriter = std::function<void(const std::string& line)>;

LineWriter standard_error_writer();

// Appends to `file`, each line with the time before it. Beyond `max_bytes` the file becomes NAME.1.EXTENSION, and so on up to `files` older
// ones, the oldest of which is removed.
LineWriter rotating_file_writer(const std::string& file, size_t max_bytes, size_t files);

}  // namespace npu_train::detail
