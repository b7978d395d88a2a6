#include "testing.hpp"

#include "npu_train/core/byte_order_mark.hpp"

using namespace npu_train;

TEST_CASE("a text starts after a complete byte order mark") {
  CHECK(start_of_text("\xEF\xBB\xBF"
                      "a") == 3);
  CHECK(start_of_text("\xEF\xBB\xBF") == 3);
  CHECK(start_of_text("\xEF\xBB") == 0);
  CHECK(start_of_text("a\xEF\xBB\xBF") == 0);
  CHECK(start_of_text("") == 0);
}
