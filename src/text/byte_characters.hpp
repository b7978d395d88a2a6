// A printable character for each byte, as in GPT-2: tokens of bytes are texts then.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace npu_train::detail {

/// Appends the characters of the bytes.
void append_byte_characters(std::string_view bytes, std::string& out);

inline std::string characters_of_bytes(std::string_view bytes) {
  std::string out;
  append_byte_characters(bytes, out);
  return out;
}

/// Appends the bytes of the characters. False, without effect: one of them does not stand for a byte.
bool append_bytes_of_characters(std::string_view characters, std::string& out);

}  // namespace npu_train::detail
