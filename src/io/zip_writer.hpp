/// Writes a zip archive of stored entries in one stream, as large as the disk (zip64 where a number needs it).
/// Format: PKWARE's APPNOTE.TXT, 4.3 and 4.5.3.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "npu_train/io/file.hpp"

namespace npu_train::detail {

class ZipWriter {
 public:
  /// Every entry's content begins at a multiple of this.
  static constexpr uint64_t kAlignment = 64;

  /// Appends to `file`, which must be empty so far and outlive this.
  explicit ZipWriter(AtomicFile& file) : file_(file) {}

  /// Adds an entry; nothing of `data` is copied.
  void add(const std::string& name, const void* data, uint64_t bytes);
  void add(const std::string& name, std::string_view text) { add(name, text.data(), text.size()); }
  /// Writes the directory, which completes the archive. Does not commit the file.
  void finish();

 private:
  struct Entry {
    std::string name;
    uint64_t offset = 0;  // of the local header
    uint64_t bytes = 0;
    uint32_t crc = 0;
  };

  AtomicFile& file_;
  std::vector<Entry> entries_;
};

}  // namespace npu_train::detail
