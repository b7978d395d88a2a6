// The layouts are defined in POSIX.1-2017 (utility pax: pax and ustar) and in "Basic Tar Format" of the manual of GNU tar.
#include "npu_train/io/tar.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

namespace npu_train {
namespace {

constexpr uint64_t kTarBlock = 512, kMostTarName = uint64_t{64} << 10, kMostPax = uint64_t{1} << 20, kMostTarEnd = uint64_t{16} << 20;

[[noreturn]] void refuse_tar(const ReadableFile& file, uint64_t at, const std::string& what, const char* hint = nullptr) {
  throw Error(file.kind(), "tar", str_cat(file.path().string(), ", offset ", at, ": ", what),
              hint != nullptr ? hint : "the archive is damaged or truncated; copy or write it again");
}

/// One block of a header.
class TarHeader {
 public:
  TarHeader(const ReadableFile& file, uint64_t at) : file_(file), at_(at) {
    if (at > file.size() || file.size() - at < kTarBlock)
      refuse_tar(file, at, "ends without the block of zeros that ends an archive; it is truncated");
    file.read(at, block_.data(), block_.size());
  }
  bool is_zero() const {
    return std::all_of(block_.begin(), block_.end(), [](char c) { return c == 0; });
  }
  char type() const { return block_[156]; }
  uint64_t size() const {
    const auto out = number(124, 12);
    if (!out) refuse_tar(file_, at_, "the size of a member is not a number");
    return *out;
  }

  /// Checks the sum of the bytes. Old programs added the bytes as signed numbers, so such a sum is valid, too.
  void check_sum() const {
    int64_t sum = 0, with_signs = 0;
    for (size_t i = 0; i < block_.size(); ++i) {
      const char c = i >= 148 && i < 156 ? ' ' : block_[i];
      sum += static_cast<unsigned char>(c);
      with_signs += static_cast<signed char>(c);
    }
    const auto claimed = number(148, 8);
    if (claimed && (static_cast<int64_t>(*claimed) == sum || static_cast<int64_t>(*claimed) == with_signs)) return;
    if (block_[0] == '\x1f' && block_[1] == '\x8b')
      refuse_tar(file_, at_, "compressed data, not a tar archive", "decompress it: gunzip FILE");
    refuse_tar(file_, at_, at_ == 0 ? "not a tar archive" : "no header of a member: its checksum is wrong");
  }

  std::string name() const {
    const auto prefix = text(345, 155);
    const bool is_ustar = std::string_view(&block_[257], 6) == std::string_view("ustar\0", 6);  // GNU's format has other fields there
    return (is_ustar && !prefix.empty() ? prefix + "/" : "") + text(0, 100);
  }

 private:
  std::string text(size_t at, size_t bytes) const {
    const std::string_view field(&block_[at], bytes);
    return std::string(field.substr(0, field.find('\0')));
  }
  /// Parses octal digits between blanks, or GNU's number in base 256 (at most 2^63 - 1) after the byte 0x80. nullopt for anything else.
  std::optional<uint64_t> number(size_t at, size_t bytes) const {
    std::string_view field(&block_[at], bytes);
    uint64_t out = 0;
    if (field[0] == '\x80') {
      for (const char c : field.substr(1)) {
        if (out >> 55 != 0) return std::nullopt;
        out = out << 8 | static_cast<unsigned char>(c);
      }
      return out;
    }
    field.remove_prefix(std::min(field.find_first_not_of(' '), field.size()));
    for (; !field.empty() && field[0] >= '0' && field[0] <= '7'; field.remove_prefix(1))
      out = out << 3 | static_cast<uint64_t>(field[0] - '0');
    return field.find_first_not_of(std::string_view(" \0", 2)) == std::string_view::npos ? std::optional(out) : std::nullopt;
  }

  const ReadableFile& file_;
  uint64_t at_;
  std::array<char, kTarBlock> block_{};
};

/// Properties of the next member that earlier headers have given.
struct TarExtension {
  std::optional<std::string> name;
  std::optional<uint64_t> size;
  bool sparse = false;
  bool any() const { return name || size || sparse; }
};

/// Reads pax records of the form "LENGTH KEY=VALUE\n"; LENGTH counts all bytes of the record.
TarExtension read_pax(const ReadableFile& file, uint64_t at, std::string_view text) {
  TarExtension out;
  while (!text.empty()) {
    uint64_t length = 0;
    const auto digits = std::from_chars(text.data(), text.data() + std::min<size_t>(text.size(), 20), length);
    const auto begin = static_cast<size_t>(digits.ptr - text.data()) + 1;
    const bool sound =
        digits.ec == std::errc() && length > begin && length <= text.size() && text[begin - 1] == ' ' && text[length - 1] == '\n';
    if (!sound) refuse_tar(file, at, "a pax header with a record of a wrong length");
    const auto record = text.substr(begin, length - begin - 1);
    text.remove_prefix(length);
    const auto equals = record.find('=');
    if (equals == std::string_view::npos) refuse_tar(file, at, "a pax header with a record without '='");
    const auto key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") {
      if (value.empty() || value.size() > kMostTarName)
        refuse_tar(file, at, str_cat("a name of ", value.size(), " bytes; allowed: 1 to ", kMostTarName));
      out.name = std::string(value.substr(0, value.find('\0')));
    } else if (key == "size") {
      uint64_t size = 0;
      const auto end = std::from_chars(value.data(), value.data() + value.size(), size);
      if (end.ec != std::errc() || end.ptr != value.data() + value.size()) refuse_tar(file, at, "a pax header whose size is not a number");
      out.size = size;
    } else if (key.starts_with("GNU.sparse.")) {
      out.sparse = true;
    }
  }
  return out;
}

/// Reads a header that describes the next member (pax or GNU's long names) or all members (global pax). Early versions of Solaris write
/// pax headers with the type X.
void read_extension(const ReadableFile& file, uint64_t at, char type, uint64_t size, TarExtension& given) {
  const auto most = type == 'L' || type == 'K' ? kMostTarName : kMostPax;
  if (size > most) refuse_tar(file, at, str_cat("a header of ", size, " bytes; allowed: at most ", most));
  const auto content = file.read(at + kTarBlock, size);
  if (type == 'L') given.name = content.substr(0, content.find('\0'));
  if (type == 'L' || type == 'K') return;
  const auto pax = read_pax(file, at, content);
  if (type == 'g') {
    if (pax.any()) refuse_tar(file, at, "a global pax header gives all members one name or size");
    return;
  }
  if (pax.name) given.name = pax.name;
  if (pax.size) given.size = pax.size;
  given.sparse = given.sparse || pax.sparse;
}

/// Rejects data after the end of the archive, which would be ignored, for example if archives were joined with cat.
void check_tar_end(const ReadableFile& file, uint64_t at) {
  const auto bytes = file.size() - at;
  const auto rest = bytes <= kMostTarEnd ? file.read(at, bytes) : std::string(1, 'x');
  if (std::any_of(rest.begin(), rest.end(), [](char c) { return c != 0; }))
    refuse_tar(file, at, str_cat("the archive ends, and the file has ", bytes, " more bytes"),
               "join archives with tar --concatenate, not with cat");
}

}  // namespace

std::optional<TarMember> next_tar_member(const ReadableFile& file, uint64_t& position) {
  const auto is = [](char type, std::string_view types) { return types.find(type) != std::string_view::npos; };
  auto begin = position;
  TarExtension given;
  for (;;) {
    const auto at = position;
    const TarHeader header(file, at);
    if (header.is_zero()) {
      if (begin != at) refuse_tar(file, at, "the archive ends between the headers of a member");
      check_tar_end(file, at);
      return std::nullopt;
    }
    header.check_sum();
    const char type = header.type();
    const bool extension = is(type, "xXgLK");
    const auto size = !extension && given.size ? *given.size : header.size();
    const auto bytes = is(type, "123456") ? 0 : size;  // links, devices and folders have no content
    const auto offset = at + kTarBlock;
    if (bytes > file.size() - offset)
      refuse_tar(file, at, str_cat("a member claims ", bytes, " bytes, and the file has ", file.size() - offset, " more"));
    position = offset + (bytes + kTarBlock - 1) / kTarBlock * kTarBlock;
    if (extension) {
      read_extension(file, at, type, size, given);
      continue;
    }
    if (is(type, "SM") || given.sparse)
      refuse_tar(file, at, "a sparse member, or a part of one", "write the archive without the options --sparse and --multi-volume");
    auto name = given.name.value_or(header.name());
    const bool folder = name.ends_with('/');  // a final '/' marked a folder before folders had a type
    if (is(type, std::string_view("0\0"
                                  "7",
                                  3)) &&
        !folder)
      return TarMember{std::move(name), begin, offset, size};
    given = {};
    begin = position;
  }
}

}  // namespace npu_train
