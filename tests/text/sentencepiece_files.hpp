/// Files of SentencePiece, written field by field, because its library writes no damaged ones.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace npu_train::testing {

inline std::string little_endian_bytes(uint32_t value) {
  std::string out;
  for (int i = 0; i < 4; ++i) out += static_cast<char>(static_cast<unsigned char>(value >> 8 * i & 0xFF));
  return out;
}

// ---- precompiled_charsmap ----

inline std::string charsmap_of_units(const std::vector<uint32_t>& units, const std::string& texts) {
  std::string out = little_endian_bytes(static_cast<uint32_t>(4 * units.size()));
  for (const auto unit : units) out += little_endian_bytes(unit);
  return out + texts;
}

/// Returns the trie of some texts. Each beginning of a text has a block of 256 units for its children. The first unit of a block is the
/// value of the beginning.
inline std::vector<uint32_t> units_of(const std::vector<std::pair<std::string, uint32_t>>& values) {
  std::map<std::string, uint32_t> blocks{{"", 1}};
  for (const auto& [text, value] : values)
    for (size_t size = 1; size <= text.size(); ++size) {
      const auto next = static_cast<uint32_t>(blocks.size() + 1);
      blocks.emplace(text.substr(0, size), next);
    }
  std::vector<uint32_t> out(256 * (blocks.size() + 1));
  for (const auto& [text, block] : blocks) {
    const auto byte = text.empty() ? 0U : static_cast<unsigned char>(text.back());
    const uint32_t at = text.empty() ? 0U : 256 * blocks.at(text.substr(0, text.size() - 1)) + byte;
    out[at] = byte | (at ^ 256 * block) << 10;
  }
  for (const auto& [text, value] : values) {
    const auto block = blocks.at(text);
    out[256 * blocks.at(text.substr(0, text.size() - 1)) + static_cast<unsigned char>(text.back())] |= 1U << 8;
    out[256 * block] = 1U << 31 | value;
  }
  return out;
}

/// Returns the map that replaces the first text of each pair by the second one.
inline std::string charsmap_of(const std::vector<std::pair<std::string, std::string>>& replacements) {
  std::string texts;
  std::vector<std::pair<std::string, uint32_t>> values;
  for (const auto& [from, to] : replacements) {
    values.emplace_back(from, static_cast<uint32_t>(texts.size()));
    texts += to + '\0';
  }
  return charsmap_of_units(units_of(values), texts);
}

inline std::string base64_of(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) bits = bits << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    for (size_t i = 0; i < 4; ++i) out += at + i <= bytes.size() ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return out;
}

// ---- tokenizer.model ----

inline std::string varint(uint64_t value) {
  std::string out;
  for (; value > 127; value >>= 7) out += static_cast<char>(static_cast<unsigned char>((value & 127) | 128));
  return out + static_cast<char>(value);
}

inline std::string text_field_of(uint64_t number, const std::string& text) { return varint(number << 3 | 2) + varint(text.size()) + text; }
inline std::string number_field_of(uint64_t number, uint64_t value) { return varint(number << 3) + varint(value); }
inline std::string float_field_of(uint64_t number, float value) {
  return varint(number << 3 | 5) + little_endian_bytes(std::bit_cast<uint32_t>(value));
}

enum PieceKind : uint64_t { kNormalPiece = 1, kUnknownPiece, kControlPiece, kUserPiece, kUnusedPiece, kBytePiece };

inline std::string piece_of(const std::string& text, float score, PieceKind kind = kNormalPiece) {
  return text_field_of(1, text_field_of(1, text) + float_field_of(2, score) + number_field_of(3, kind));
}

enum ModelKind : uint64_t { kUnigramModel = 1, kBpeModel };

inline std::string trainer_of(ModelKind kind, const std::string& more = "") { return text_field_of(2, number_field_of(3, kind) + more); }

}  // namespace npu_train::testing
