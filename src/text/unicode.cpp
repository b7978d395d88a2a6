#include "text/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/text/utf8.hpp"

namespace npu_train::detail {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

utf8proc_option_t options_of(NormalForm form) {
  int out = form == NormalForm::Nfc || form == NormalForm::Nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::Nfkc || form == NormalForm::Nfkd) out |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(out | UTF8PROC_STABLE);
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

void require_text_libraries(const char*) {}

std::string normal_form(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto size = static_cast<utf8proc_ssize_t>(text.size());
  const auto options = options_of(form);
  // Most texts do not grow; the longest decomposition has 18 code points (U+FDFA).
  std::vector<utf8proc_int32_t> points(text.size() + 32);
  auto count = utf8proc_decompose(bytes, size, points.data(), static_cast<utf8proc_ssize_t>(points.size()), options);
  if (count > static_cast<utf8proc_ssize_t>(points.size())) {
    points.resize(static_cast<size_t>(count));
    count = utf8proc_decompose(bytes, size, points.data(), count, options);
  }
  check(count >= 0, ErrorKind::Data, "tokenizer", "the text cannot be normalised: ", utf8proc_errmsg(count));
  count = utf8proc_normalize_utf32(points.data(), count, options);
  check(count >= 0, ErrorKind::Data, "tokenizer", "the text cannot be normalised: ", utf8proc_errmsg(count));
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i) append_point(out, static_cast<char32_t>(points[static_cast<size_t>(i)]));
  return out;
}

size_t behind_grapheme(std::string_view text, size_t at) {
  size_t end = at;
  auto before = static_cast<utf8proc_int32_t>(next_point(text, end));
  utf8proc_int32_t state = 0;
  for (size_t next = end; next < text.size(); end = next) {
    const auto point = static_cast<utf8proc_int32_t>(next_point(text, next));
    if (utf8proc_grapheme_break_stateful(before, point, &state)) return end;
    before = point;
  }
  return end;
}

void append_lower(std::string& out, char32_t c) {
  if (c == 0x130) {  // the only character whose lower case is several characters (SpecialCasing.txt)
    out += "i\xCC\x87";
  } else {
    append_point(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return (c > ' ' && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') || (c > 'z' && c < 0x7F);
  const auto of = category(c);
  return of >= UTF8PROC_CATEGORY_PC && of <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t c) {
  const auto of = category(c);
  return of >= UTF8PROC_CATEGORY_MN && of <= UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t c) { return c >= 0x300 && category(c) == UTF8PROC_CATEGORY_MN; }

bool is_number(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const auto of = category(c);
  return of >= UTF8PROC_CATEGORY_ND && of <= UTF8PROC_CATEGORY_NO;
}

bool is_control(char32_t c) {
  if (c < 0x7F) return c < ' ';
  const auto of = category(c);
  return of == UTF8PROC_CATEGORY_CC || of == UTF8PROC_CATEGORY_CF || of == UTF8PROC_CATEGORY_CO;
}

}  // namespace npu_train::detail
