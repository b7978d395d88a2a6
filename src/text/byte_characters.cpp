#include "text/byte_characters.hpp"

#include "npu_train/text/utf8.hpp"

namespace npu_train::detail {
namespace {

bool is_printable(unsigned byte) { return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD); }

struct Tables {
  std::array<char, 512> texts{};       // the UTF-8 form of each byte's character; each has room for two bytes
  std::array<uint8_t, 256> sizes{};    // size of each form: 1 or 2
  std::array<int16_t, 0x144> bytes{};  // byte of each code point; -1: none
};

Tables make_tables() {
  Tables out;
  out.bytes.fill(-1);
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char32_t c = is_printable(byte) ? byte : next++;
    std::string text;
    append_point(text, c);
    for (size_t i = 0; i < text.size(); ++i) out.texts[2 * byte + i] = text[i];
    out.sizes[byte] = static_cast<uint8_t>(text.size());
    out.bytes[c] = static_cast<int16_t>(byte);
  }
  return out;
}

const Tables& tables() {
  static const Tables out = make_tables();
  return out;
}

}  // namespace

void append_byte_characters(std::string_view bytes, std::string& out) {
  const auto& t = tables();
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out.append(&t.texts[2 * size_t{byte}], t.sizes[byte]);
  }
}

bool append_bytes_of_characters(std::string_view characters, std::string& out) {
  const auto& t = tables();
  const auto size = out.size();
  for (size_t at = 0; at < characters.size();) {
    const auto c = next_point(characters, at);
    if (c >= t.bytes.size() || t.bytes[c] < 0) {
      out.resize(size);
      return false;
    }
    out += static_cast<char>(t.bytes[c]);
  }
  return true;
}

}  // namespace npu_train::detail
