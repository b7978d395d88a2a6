#include "testing.hpp"

#include "npu_train/io/json_list.hpp"

using namespace npu_train;

TEST_CASE("values in their order") {
  CHECK(detail::json_list({"b", "a\""}).dump(0) == "[\"b\", \"a\\\"\"]");
  CHECK(detail::json_list(std::vector<double>{0.5, 2}).dump(0) == "[0.5, 2.0]");
  CHECK(detail::json_list({}).dump(0) == "[]");
}
