#include "testing.hpp"

#include "npu_train/data/generated_text.hpp"

#include "npu_train/data/datasets.hpp"

using namespace npu_train;

TEST_CASE("the text depends on the seed alone, and a longer one continues it") {
  const auto text = generate_text(2000, 1);
  CHECK(text.size() == 2000);
  CHECK(generate_text(500, 1) == text.substr(0, 500));
  CHECK(generate_text(500, 2) != text.substr(0, 500));
  CHECK(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz. ") == std::string::npos);
  CHECK(testing::error_of([] { generate_text(-1, 1); }).kind() == ErrorKind::Usage);
}

TEST_CASE("samples of the data set are consecutive bytes with the next byte as target") {
  const auto pair =
      builtin_datasets().make({.name = "generated_text", .options = {{"train_size", 3}, {"val_size", 2}, {"context", 5}}, .mark = {}},
                              "data", builtin_transforms());
  const auto text = generate_text(16, 1);
  REQUIRE(pair.train->size() == 3);
  CHECK(pair.val->size() == 2);
  for (int64_t i = 0; i < 3; ++i) {
    const auto fields = pair.train->get(i).fields;
    for (int64_t k = 0; k < 5; ++k) {
      CHECK(fields[0].second[k].item<int64_t>() == text[static_cast<size_t>(5 * i + k)]);
      CHECK(fields[1].second[k].item<int64_t>() == text[static_cast<size_t>(5 * i + k + 1)]);
    }
  }
}
