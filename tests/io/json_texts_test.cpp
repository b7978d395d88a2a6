#include "testing.hpp"

#include "npu_train/io/json_texts.hpp"

using namespace npu_train;

TEST_CASE("texts in their order") {
  CHECK(detail::json_texts({"b", "a\""}).dump(0) == "[\"b\", \"a\\\"\"]");
  CHECK(detail::json_texts({}).dump(0) == "[]");
}
