#include "testing.hpp"

#include "npu_train/engine/weight_set.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("the names of the configuration and of the command line") {
  CHECK(weight_set_of("auto") == WeightSet::Auto);
  for (const char* name : {"model", "plain"}) CHECK(weight_set_of(name) == WeightSet::Plain);
  CHECK(weight_set_of("ema") == WeightSet::Ema);
  const auto error = error_of([] { weight_set_of("averages"); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(has(error.what(), "'averages'"));
}
