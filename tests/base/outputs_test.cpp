#include "testing.hpp"

#include "npu_train/base/outputs.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "npu_train/core/error.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;

TEST_CASE("outputs by name, in their order") {
  const Outputs none;
  CHECK_FALSE(none.first().defined());
  const Outputs one = at::ones({2});
  CHECK(one.fields().size() == 1);
  CHECK(one.at("output").numel() == 2);
  const Outputs two({{"boxes", at::zeros({4})}, {"scores", at::ones({1})}});
  CHECK(two.first().numel() == 4);
  CHECK(two.has("scores"));
  CHECK_FALSE(two.has("output"));
  const auto e = error_of([&] { (void)two.at("score"); });
  CHECK(e.kind() == ErrorKind::Usage);
  CHECK(has(e.what(), "no output 'score'; it has: boxes, scores"));
}
