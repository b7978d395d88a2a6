#include "testing.hpp"

#include "npu_train/core/wrapped.hpp"

using namespace npu_train;

TEST_CASE("a sentence is broken at blanks, with a prefix before its lines") {
  CHECK(wrapped("one two three four", "- ", "  ", 11) == "- one two\n  three\n  four\n");
  CHECK(wrapped("one two", "", "", 0) == "one two\n");
  CHECK(wrapped("a /a/path/that/is/too/long b", "", " ", 10) == "a\n /a/path/that/is/too/long\n b\n");
  CHECK(wrapped("größe größe", "", "", 11) == "größe größe\n");  // the width counts columns, not bytes
  CHECK(wrapped("\x1b[31m", "", "", 0) == "\\x1b[31m\n");
}

TEST_CASE("a line keeps its layout when it is broken") {
  CHECK(wrapped_line("short  line", 20) == "short  line\n");
  CHECK(wrapped_line("short  line", 0) == "short  line\n");
  CHECK(wrapped_line("  done      the first sentence and the second", 30) ==
        "  done      the first sentence\n            and the second\n");
  CHECK(wrapped_line("one two three four", 9) == "one two\n  three\n  four\n");
  CHECK(wrapped_line("  note: one two three", 14) == "  note: one\n    two three\n");
  CHECK(wrapped_line("saved /a/path/that/is/too/long now", 12) == "saved\n  /a/path/that/is/too/long\n  now\n");
  CHECK(wrapped_line(std::string(40, 'x'), 10) == std::string(40, 'x') + "\n");
  CHECK(wrapped_lines("one two\n\nthree four\n", 6) == "one\n  two\n\nthree\n  four\n");
}
