#include "tools/doctor/elf.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "npu_train/core/error.hpp"
#include "npu_train/io/file.hpp"
#include "tools/doctor/parse.hpp"

namespace npu_train::detail {
namespace {

constexpr const char* kElf = "ELF file";
constexpr size_t kMostSegments = 512, kMostEntries = 4096, kMostNeeded = 256;
constexpr uint64_t kLongestName = 4096, kMostStrings = uint64_t{64} << 20, kBlock = uint64_t{1} << 20;

template <class T>
T read_struct(const ReadableFile& file, uint64_t offset) {
  T out;
  file.read(offset, &out, sizeof(T));
  return out;
}

struct Segments {
  std::vector<Elf64_Phdr> loads;
  Elf64_Phdr dynamic{};
  bool has_dynamic = false;

  // Returns the file offset of an address.
  std::optional<uint64_t> offset(uint64_t address) const {
    for (const auto& s : loads)
      if (address >= s.p_vaddr && address - s.p_vaddr < s.p_filesz) return s.p_offset + (address - s.p_vaddr);
    return std::nullopt;
  }
};

Elf64_Ehdr read_header(const ReadableFile& file) {
  check(file.size() >= sizeof(Elf64_Ehdr), ErrorKind::Data, kElf, "only ", file.size(), " bytes");
  const auto header = read_struct<Elf64_Ehdr>(file, 0);
  check(std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0, ErrorKind::Data, kElf, "it is not an ELF file");
  check(header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == ELFDATA2LSB, ErrorKind::Data, kElf,
        "it is not a 64-bit little-endian file");
  check(header.e_phentsize == sizeof(Elf64_Phdr) && header.e_phnum <= kMostSegments, ErrorKind::Data, kElf,
        "its program header is invalid");
  return header;
}

Segments read_segments(const ReadableFile& file, const Elf64_Ehdr& header) {
  Segments out;
  for (size_t i = 0; i < header.e_phnum; ++i) {
    check(header.e_phoff <= file.size(), ErrorKind::Data, kElf, "its program header is beyond its end");
    const auto segment = read_struct<Elf64_Phdr>(file, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (segment.p_type == PT_LOAD) {
      check(segment.p_filesz <= file.size() && segment.p_offset <= file.size() - segment.p_filesz, ErrorKind::Data, kElf,
            "it is truncated: ", file.size(), " bytes, a segment of ", segment.p_filesz, " bytes begins at ", segment.p_offset);
      out.loads.push_back(segment);
    }
    if (segment.p_type == PT_DYNAMIC) {
      out.dynamic = segment;
      out.has_dynamic = true;
    }
  }
  check(out.has_dynamic, ErrorKind::Data, kElf, "it has no dynamic section");
  return out;
}

// Reads names by their offset in the string table.
struct Strings {
  const ReadableFile& file;
  uint64_t start = 0, size = 0;

  std::string at(uint64_t index) const {
    check(index < size, ErrorKind::Data, kElf, "a name is beyond the string table");
    const auto most = std::min({kLongestName, size - index, file.size() - (start + index)});
    const auto text = file.read(start + index, most);
    return text.substr(0, text.find('\0'));
  }

  bool contain(std::string_view part) const {
    std::string block;
    for (uint64_t done = 0; done < std::min(size, kMostStrings);) {
      const auto more = std::min(kBlock, size - done);
      const auto keep = block.size() > part.size() ? block.substr(block.size() - part.size()) : block;
      block = keep + file.read(start + done, more);
      if (block.find(part) != std::string::npos) return true;
      done += more;
    }
    return false;
  }
};

std::vector<Elf64_Dyn> read_dynamic(const ReadableFile& file, const Elf64_Phdr& segment) {
  std::vector<Elf64_Dyn> out;
  const auto most = std::min<uint64_t>(segment.p_filesz / sizeof(Elf64_Dyn), kMostEntries);
  check(segment.p_offset <= file.size(), ErrorKind::Data, kElf, "its dynamic section is beyond its end");
  for (uint64_t i = 0; i < most; ++i) {
    out.push_back(read_struct<Elf64_Dyn>(file, segment.p_offset + i * sizeof(Elf64_Dyn)));
    if (out.back().d_tag == DT_NULL) break;
  }
  return out;
}

Strings find_strings(const ReadableFile& file, const Segments& segments, const std::vector<Elf64_Dyn>& dynamic) {
  Strings out{file};
  uint64_t address = 0;
  for (const auto& entry : dynamic) {
    if (entry.d_tag == DT_STRTAB) address = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRSZ) out.size = entry.d_un.d_val;
  }
  const auto start = segments.offset(address);
  check(start && *start < file.size(), ErrorKind::Data, kElf, "its string table is outside the file");
  out.start = *start;
  out.size = std::min(out.size, file.size() - out.start);
  return out;
}

ElfFacts read_facts(const ReadableFile& file) {
  const auto header = read_header(file);
  const auto segments = read_segments(file, header);
  const auto dynamic = read_dynamic(file, segments.dynamic);
  const auto strings = find_strings(file, segments, dynamic);
  ElfFacts out;
  out.machine = header.e_machine;
  for (const auto& entry : dynamic) {
    if (entry.d_tag == DT_NEEDED && out.needed.size() < kMostNeeded) out.needed.push_back(strings.at(entry.d_un.d_val));
    if (entry.d_tag == DT_RPATH) out.rpath = split(strings.at(entry.d_un.d_val), ':');
    if (entry.d_tag == DT_RUNPATH) out.runpath = split(strings.at(entry.d_un.d_val), ':');
    if (entry.d_tag == DT_SONAME) out.soname = strings.at(entry.d_un.d_val);
  }
  out.cxx11_names = strings.contain("__cxx11");
  return out;
}

}  // namespace

std::string ElfFacts::machine_name() const {
  if (machine == EM_X86_64) return "x86_64";
  if (machine == EM_AARCH64) return "aarch64";
  return "machine " + std::to_string(machine);
}

std::optional<ElfFacts> read_elf(const std::filesystem::path& file, std::string& why) {
  try {
    return read_facts(ReadableFile(file));
  } catch (const Error& e) {
    why = e.what();
    return std::nullopt;
  }
}

}  // namespace npu_train::detail
