#include "testing.hpp"

#include "npu_train/core/first_line.hpp"

using npu_train::detail::first_line;

TEST_CASE("the first line with something in it, without the blanks around it") {
  CHECK(first_line("5.10.0 \n2\n") == "5.10.0");
  CHECK(first_line("\n \t\r\n  an error\r\nits stack") == "an error");
  CHECK(first_line("one") == "one");
  CHECK(first_line(" \n\n").empty());
  CHECK(first_line("").empty());
}
