/// Reads zip archives (stored and deflated entries, zip64). Everything in them is untrusted and checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/io/file.hpp"

namespace npu_train::detail {

class ZipArchive {
 public:
  /// Reads the central directory. Error(`file.kind()`) if the archive is invalid, or its directory has more than `largest_directory` bytes.
  ZipArchive(ReadableFile file, uint64_t largest_directory);

  const ReadableFile& file() const { return file_; }
  /// Names in archive order.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(const std::string& name) const { return entries_.count(name) != 0; }
  /// Returns the unpacked size of an entry.
  uint64_t size(const std::string& name) const { return entry(name).size; }
  /// Reads the content, size(name) bytes, and checks its CRC-32.
  void read(const std::string& name, void* out) const;
  std::string read(const std::string& name) const;
  /// Returns where in the file the content of a stored entry begins (contiguous, size(name) bytes); nullopt for a packed entry.
  std::optional<uint64_t> stored_at(const std::string& name) const;

 private:
  struct Entry {
    uint64_t offset = 0;  // offset of the local header
    uint64_t packed = 0;
    uint64_t size = 0;
    uint32_t crc = 0;
    int method = 0;
  };
  struct Directory {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint64_t entries = 0;
  };

  template <class... Parts>
  void require(bool ok, const Parts&... parts) const;
  Directory find_directory() const;
  void read_directory(const Directory& directory);
  uint64_t content_begin(const Entry& entry, const std::string& name) const;
  void take_zip64(std::string_view extra, Entry& entry, bool size, bool packed, bool offset) const;
  const Entry& entry(const std::string& name) const;
  void inflate_into(const Entry& entry, uint64_t from, const std::string& name, void* out) const;

  ReadableFile file_;
  uint64_t content_end_ = 0;  // start of the directory; the content of every entry ends before it
  std::vector<std::string> names_;
  std::map<std::string, Entry> entries_;
};

}  // namespace npu_train::detail
