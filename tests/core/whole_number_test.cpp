#include "npu_train/core/whole_number.hpp"

#include "testing.hpp"

using npu_train::whole_number;

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
