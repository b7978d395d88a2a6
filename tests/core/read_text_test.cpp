#include "testing.hpp"

#include "npu_train/core/read_text.hpp"

using namespace npu_train;

TEST_CASE("nothing precedes or follows the number") {
  CHECK(whole_number("12") == 12);
  CHECK(whole_number("-3") == -3);
  CHECK(whole_number("007") == 7);
  CHECK(whole_number("9223372036854775807") == INT64_MAX);
  for (const char* text : {"", "+1", " 1", "1 ", "1a", "0x10", "1.0", "1e3", "-", "two", "9223372036854775808"}) {
    CAPTURE(text);
    CHECK_FALSE(whole_number(text));
  }
}

TEST_CASE("a text starts after a complete byte order mark") {
  CHECK(start_of_text("\xEF\xBB\xBF"
                      "a") == 3);
  CHECK(start_of_text("\xEF\xBB\xBF") == 3);
  CHECK(start_of_text("\xEF\xBB") == 0);
  CHECK(start_of_text("a\xEF\xBB\xBF") == 0);
  CHECK(start_of_text("") == 0);
}

TEST_CASE("lines have no ends and no byte order mark") {
  using Lines = std::vector<std::string_view>;
  const auto lines = [](std::string_view text) {
    Lines out;
    for_each_line(text, [&](std::string_view line) { out.push_back(line); });
    return out;
  };
  CHECK(lines("") == Lines{});
  CHECK(lines("\n") == Lines{""});
  CHECK(lines("a\nb") == Lines{"a", "b"});
  CHECK(lines("a\nb\n") == Lines{"a", "b"});
  CHECK(lines("a\r\n\r\nb\r") == Lines{"a", "", "b"});
  CHECK(lines("a\rb") == Lines{"a\rb"});
  CHECK(lines("\xEF\xBB\xBF"
              "a\n\xEF\xBB\xBF") == Lines{"a", "\xEF\xBB\xBF"});
}
