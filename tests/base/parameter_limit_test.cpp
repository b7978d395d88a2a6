#include "testing.hpp"

#include "npu_train/base/parameter_limit.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

using namespace npu_train;

TEST_CASE("elements outside of a limit are moved to the nearest value, others stay") {
  const ParameterLimit limit{.name = "scale", .least = 0, .most = 4.5};
  const at::Tensor value = at::tensor({-1.0, 0.0, 4.25, 4.5, 9.0});
  CHECK(at::equal(limit.within(value), at::tensor({0.0, 0.0, 4.25, 4.5, 4.5})));
  CHECK(limit.within(at::tensor({testing::kNaN})).isnan().all().item<bool>());
}
