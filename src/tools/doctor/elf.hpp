// Reads the dynamic section of a 64-bit little-endian ELF file: needed libraries and search paths. Reads are bounded, since files are not
// trusted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace npu_train::detail {

struct ElfFacts {
  uint16_t machine = 0;              // 62: x86-64, 183: aarch64
  std::vector<std::string> needed;   // DT_NEEDED, at most 256
  std::vector<std::string> rpath;    // folders of DT_RPATH
  std::vector<std::string> runpath;  // folders of DT_RUNPATH, which makes the loader ignore DT_RPATH
  std::string soname;
  bool cxx11_names = false;  // a name in its string table uses the C++11 ABI ("__cxx11")

  // Returns "x86_64", "aarch64", or "machine 8".
  std::string machine_name() const;
};

// Returns nullopt, with the reason in `why`, for a file that is missing, truncated or not a 64-bit little-endian ELF file.
std::optional<ElfFacts> read_elf(const std::filesystem::path& file, std::string& why);

}  // namespace npu_train::detail
