/// Content checks of files, to detect corrupted bytes before they become weights.
#pragma once

#include <cstdint>
#include <filesystem>

#include "npu_train/core/error.hpp"

namespace npu_train {

/// Returns hash64 of the file's content, read in pieces. Error(`kind`) if it cannot be read.
uint64_t file_checksum(const std::filesystem::path& path, ErrorKind kind = ErrorKind::Checkpoint);

/// Checks the size and the checksum of the file. Error(`kind`) if one of them differs; the message gives both values.
void verify_file(const std::filesystem::path& path, uint64_t bytes, uint64_t checksum, ErrorKind kind = ErrorKind::Checkpoint);

}  // namespace npu_train
