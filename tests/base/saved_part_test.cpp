#include "npu_train/base/saved_part.hpp"

#include "testing.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

using namespace npu_train;
using npu_train::detail::saved_part;

TEST_CASE("saved state of all of a parameter, of a rank's slice of it, and with a different shape") {
  const Parameter weight{.name = "w", .value = at::zeros({4, 3})};
  const auto slice = weight.slice(3, 5);
  const auto all = at::arange(12, at::kFloat).view({4, 3});
  CHECK(at::equal(saved_part(weight, all), all));
  CHECK(at::equal(saved_part(slice, all), at::arange(3, 8, at::kFloat)));
  CHECK(at::equal(saved_part(slice, at::arange(5, at::kFloat)), at::arange(5, at::kFloat)));
  CHECK(!saved_part(slice, at::zeros({6})).defined());
  CHECK(!saved_part(weight, at::zeros({3, 4})).defined());
  CHECK(!saved_part(weight, at::zeros({12})).defined());
}
