/// Writes a zip archive of stored entries as one stream of any size (zip64 where necessary).
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
  /// Alignment of each entry's content.
  static constexpr uint64_t kAlignment = 64;

  /// Appends to `file`, which must be empty and outlive this object.
  explicit ZipWriter(AtomicFile& file) : file_(file) {}

  /// Adds an entry without copying `data`.
  void add(const std::string& name, const void* data, uint64_t bytes);
  void add(const std::string& name, std::string_view text) { add(name, text.data(), text.size()); }
  /// Writes the directory, which completes the archive. Does not commit the file.
  void finish();

 private:
  struct Entry {
    std::string name;
    uint64_t offset = 0;  // offset of the local header
    uint64_t bytes = 0;
    uint32_t crc = 0;
  };

  AtomicFile& file_;
  std::vector<Entry> entries_;
};

}  // namespace npu_train::detail
