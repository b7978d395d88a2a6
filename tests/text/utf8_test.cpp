#include "testing.hpp"

#include "npu_train/text/utf8.hpp"

#include <vector>

using namespace npu_train::detail;

TEST_CASE("every code point is written and read back") {
  for (char32_t point = 0; point <= 0x10FFFF; ++point) {
    if (point == 0xD800) point = 0xE000;
    std::string text;
    append_point(text, point);
    size_t at = 0;
    REQUIRE(next_point(text, at) == point);
    REQUIRE(at == text.size());
    REQUIRE(behind_point(text, 0) == text.size());
    REQUIRE(first_invalid_byte(text) == std::string::npos);
  }
}

TEST_CASE("each maximal part that is not UTF-8 becomes one replacement") {
  const std::string r = "\xEF\xBF\xBD";
  // Examples of The Unicode Standard 15, tables 3-8 to 3-11.
  CHECK(with_replacements("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41") == r + r + r + r + r + r + r + r + "A");
  CHECK(with_replacements("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41") == r + r + r + r + r + r + r + r + "A");
  CHECK(with_replacements("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42") == r + r + r + r + r + "A" + r + r + "B");
  CHECK(with_replacements("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41") == r + r + r + r + "A");
  CHECK(first_invalid_byte("ab\xE1\x80") == 2);
  CHECK(with_replacements("caf\xC3\xA9") == "caf\xC3\xA9");
}
