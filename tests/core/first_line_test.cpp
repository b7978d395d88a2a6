#include "testing.hpp"

#include "npu_train/core/first_line.hpp"

using npu_train::detail::first_line, npu_train::detail::trimmed_view;

TEST_CASE("the first line with something in it, without the blanks around it") {
  CHECK(first_line("5.10.0 \n2\n") == "5.10.0");
  CHECK(first_line("\n \t\r\n  an error\r\nits stack") == "an error");
  CHECK(first_line("one") == "one");
  CHECK(first_line(" \n\n").empty());
  CHECK(first_line("").empty());
}

TEST_CASE("a text without the blanks around it") {
  CHECK(trimmed_view(" \t a b\r\n") == "a b");
  const std::string_view blank = "  ";
  CHECK(trimmed_view(blank).empty());
  CHECK(trimmed_view(blank).data() == blank.data() + 2);
}
