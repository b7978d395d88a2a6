#include "testing.hpp"

#include "npu_train/engine/data_check.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("a data set that can be read is counted by class") {
  RunConfig config;
  config.data = {.name = "generated", .options = {{"train_size", 50}, {"val_size", 20}}};
  const auto found = check_data(config);
  CHECK(found.passed());
  CHECK(found.train == 50);
  CHECK(found.val == 20);
  CHECK(found.summary == "50 + 20 images, 10 classes");
  REQUIRE(found.classes.size() == 10);
  int64_t train = 0, val = 0;
  for (const auto& c : found.classes) train += c.train, val += c.val;
  CHECK(train == 50);
  CHECK(val == 20);
  CHECK(has(to_text(found), "every sample can be read"));
}

TEST_CASE("a configuration without data is a mistake of use") {
  CHECK(error_of([] { check_data(RunConfig{}); }).kind() == ErrorKind::Usage);
}
