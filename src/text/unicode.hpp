// Properties of characters and normal forms, from utf8proc.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace npu_train::detail {

enum class NormalForm { Nfc, Nfd, Nfkc, Nfkd };

/// Error(Device) with the name `where` if npu_train was built without the libraries for text (NPU_TRAIN_TEXT).
void require_text_libraries(const char* where);

/// Returns valid UTF-8 in a normal form (Unicode Standard Annex 15).
std::string normal_form(std::string_view text, NormalForm form);

/// Returns the end of the grapheme that begins at `at` in valid UTF-8 (Unicode Standard Annex 29, extended grapheme clusters).
size_t behind_grapheme(std::string_view text, size_t at);

/// Appends the lower-case form of a character. The form may have several characters.
void append_lower(std::string& out, char32_t point);

/// Returns whether a character has the property White_Space.
inline bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

/// Return whether the general category of a character is, in the order of the functions: P (or the character is one of "$+<=>^`|~"); M; Mn;
/// N; Cc, Cf or Co.
bool is_punctuation(char32_t c);
bool is_mark(char32_t c);
bool is_nonspacing_mark(char32_t c);
bool is_number(char32_t c);
bool is_control(char32_t c);

}  // namespace npu_train::detail
