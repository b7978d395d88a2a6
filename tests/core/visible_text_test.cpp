#include "testing.hpp"

#include "npu_train/core/visible_text.hpp"

using namespace npu_train::detail;

TEST_CASE("what acts on a terminal is escaped, a byte otherwise than a code point") {
  CHECK(visible_text("a\n\t\x1b[2J \xC3\xA9") == "a\\n\\t\\x1b[2J \xC3\xA9");
  CHECK(visible_text("\x80 \xC2\x80 \xE2\x80\xAE") == "\\x80 \\u0080 \\u202e");
}

TEST_CASE("a start is counted in code points, and marks omitted text") {
  CHECK(visible_start("\xC3\xA9\xC3\xA9\xC3\xA9", 2) == "\xC3\xA9\xC3\xA9...");
  CHECK(visible_start("ab", 2) == "ab");
  CHECK(visible_start("\xFF\xFF"
                      "b",
                      2) == "\\xff\\xff...");
  CHECK(visible_start("", 0).empty());
}

TEST_CASE("code points count bytes that are not UTF-8 one by one") {
  CHECK(code_points("\xC3\xA9"
                    "b") == 2);
  CHECK(code_points("\x80\x80"
                    "b") == 3);
}

TEST_CASE("of lines, their ends and tabs stay") {
  CHECK(visible_lines("a\tb\n\x1b]0;t\x07\n\n") == "a\tb\n\\x1b]0;t\\x07\n\n");
  CHECK(visible_lines("\xC2\x9B"
                      "2J\r\n") == "\\u009b2J\\r\n");
  CHECK(visible_lines("").empty());
}
