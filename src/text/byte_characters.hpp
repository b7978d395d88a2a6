// Maps each byte to a printable character, as GPT-2 does, so that a token of arbitrary bytes can be written as text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace npu_train::detail {

/// Appends the character of each byte.
void append_byte_characters(std::string_view bytes, std::string& out);

inline std::string characters_of_bytes(std::string_view bytes) {
  std::string out;
  append_byte_characters(bytes, out);
  return out;
}

/// Appends the bytes that the characters represent. Returns false, and appends nothing, if a character represents no byte.
bool append_bytes_of_characters(std::string_view characters, std::string& out);

}  // namespace npu_train::detail
