#include "npu_train/base/host_numbers.hpp"

#include "testing.hpp"

#include <torch/types.h>

using namespace npu_train;

TEST_CASE("elements are given in row-major order, from any dtype, strides and state of autograd") {
  const auto rows = torch::tensor({{1.5, -2.0}, {3.0, 0.25}}, torch::kFloat16).requires_grad_(true);
  CHECK(host_numbers(rows) == std::vector<double>{1.5, -2, 3, 0.25});
  CHECK(host_numbers(rows.t()) == std::vector<double>{1.5, 3, -2, 0.25});
  CHECK(host_numbers(torch::tensor(7)) == std::vector<double>{7});
  CHECK(host_numbers(torch::zeros({0, 3})).empty());
}
