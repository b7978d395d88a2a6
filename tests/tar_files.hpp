/// Valid and hostile tar archives, made byte by byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace npu_train::testing {

struct TarEntry {
  std::string name;
  std::string content{};
  char type = '0';
  std::optional<std::string> size{};  ///< the 12 bytes of the size field; by default, they give the content's size
  std::string prefix{};
  std::string magic = std::string(
      "ustar\0"
      "00",
      8);
};

inline std::string octal(uint64_t value, size_t digits) {
  std::string out;
  for (size_t i = 0; i < digits; ++i, value >>= 3) out.insert(out.begin(), static_cast<char>('0' + (value & 7)));
  return out;
}

/// Sets the checksum of a header.
inline std::string with_checksum(std::string header) {
  header.replace(148, 8, 8, ' ');
  uint64_t sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  return header.replace(148, 7, octal(sum, 6) + '\0');
}

inline std::string tar_member(const TarEntry& entry) {
  std::string header(512, '\0');
  const auto put = [&](size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  put(0, entry.name);
  put(100, "0000644");
  put(124, entry.size.value_or(octal(entry.content.size(), 11)));
  put(136, octal(0, 11));
  header[156] = entry.type;
  put(257, entry.magic);
  put(345, entry.prefix);
  return with_checksum(header) + entry.content + std::string((512 - entry.content.size() % 512) % 512, '\0');
}

inline std::string tar_end() { return std::string(1024, '\0'); }

/// Returns an archive with these members.
inline std::string tar_of(const std::vector<TarEntry>& entries) {
  std::string out;
  for (const auto& entry : entries) out += tar_member(entry);
  return out + tar_end();
}

/// Returns a pax record. Its length counts the complete record, including the length itself.
inline std::string pax_record(const std::string& key, const std::string& value) {
  const auto rest = " " + key + "=" + value + "\n";
  auto length = rest.size() + 1;
  while (std::to_string(length).size() + rest.size() != length) ++length;
  return std::to_string(length) + rest;
}

}  // namespace npu_train::testing
