/// Reads zip archives (stored and deflated entries, zip64) with everything in them treated as a claim to be checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "npu_train/io/file.hpp"

namespace npu_train::detail {

class ZipArchive {
 public:
  /// Reads the central directory. Error(Checkpoint) when it is not a sound archive.
  explicit ZipArchive(const std::filesystem::path& path);

  /// In the archive's order.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(const std::string& name) const { return entries_.count(name) != 0; }
  /// Size of the entry's content.
  uint64_t size(const std::string& name) const { return entry(name).size; }
  /// Reads the content (exactly `size(name)` bytes) and checks its CRC-32.
  void read(const std::string& name, void* out) const;
  std::string read(const std::string& name) const;

 private:
  struct Entry {
    uint64_t offset = 0;  // of the local header
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
  void take_zip64(std::string_view extra, Entry& entry, bool size, bool packed, bool offset) const;
  const Entry& entry(const std::string& name) const;
  void inflate_into(const Entry& entry, uint64_t from, const std::string& name, void* out) const;

  ReadableFile file_;
  std::vector<std::string> names_;
  std::map<std::string, Entry> entries_;
};

}  // namespace npu_train::detail
