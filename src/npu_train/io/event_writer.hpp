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
  /// Opens a new file in `dir` (created if missing), with a name that readers sort after all existing files. Error(Checkpoint) if that
  /// fails.
  explicit EventWriter(const std::string& dir);

  /// Marks a resumed run (SessionLog START): readers discard what earlier files contain from `step` on.
  void start_session(int64_t step);

  /// Adds one value per tag at `step`, and flushes. NaN and infinities are written unchanged. Error(Checkpoint) if the disk does not accept
  /// the record; the file then ends with the previous record, and a later one may succeed.
  void add_scalars(const std::vector<std::pair<std::string, double>>& tags, int64_t step);

  const std::string& path() const { return file_.path(); }

 private:
  void write_record(std::string_view event);

  AppendFile file_;
};

/// Returns CRC-32C (Castagnoli, RFC 3720), the checksum of TFRecord frames.
uint32_t crc32c(std::string_view data);

}  // namespace npu_train
