/// Writes scalars in the file format that TensorBoard reads (TFRecord frames around Event messages).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "npu_train/core/append_file.hpp"

namespace npu_train {

/// One events.out.tfevents.* file. Records are complete or absent: a reader that follows the file never sees a partial frame as valid.
class EventWriter {
 public:
  /// Opens a new file in `dir` (created if it is missing), which readers take after all existing files. Error(Checkpoint) if that is
  /// not possible.
  explicit EventWriter(const std::string& dir);

  /// The run continues here: readers forget what earlier files have at `step` and after it (SessionLog START).
  void start_session(int64_t step);

  /// Adds one value for each tag at `step`, flushed at once. NaN and infinities are written as they are. Error(Checkpoint) if the disk
  /// does not accept the record; the file then ends with the previous record, and a later one may succeed.
  void add_scalars(const std::vector<std::pair<std::string, double>>& tags, int64_t step);

  const std::string& path() const { return file_.path(); }

 private:
  void write_record(std::string_view event);

  AppendFile file_;
};

/// CRC-32C (Castagnoli, RFC 3720), the checksum of TFRecord frames.
uint32_t crc32c(std::string_view data);

}  // namespace npu_train
