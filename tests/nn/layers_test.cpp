#include "testing.hpp"

#include <ATen/ops/ones.h>

#include <sstream>

#include "npu_train/nn/init.hpp"
#include "npu_train/nn/layers.hpp"
#include "npu_train/nn/named_state.hpp"

using namespace npu_train;

TEST_CASE("shapes, names and text") {
  Conv2d conv({.in = 3, .out = 8, .kernel = 3, .stride = 2, .padding = 1, .bias = true});
  init::ones_(conv.weight);
  init::zeros_(conv.bias);
  CHECK(parameters_of(conv).find("weight")->value.sizes() == at::IntArrayRef({8, 3, 3, 3}));
  const at::Tensor y = conv.forward(at::ones({2, 3, 5, 5}));
  CHECK(y.sizes() == at::IntArrayRef({2, 8, 3, 3}));
  CHECK(y[0][0][1][1].item<float>() == 27);
  CHECK(y[0][0][0][0].item<float>() == 12);

  Linear linear(4, 2);
  init::ones_(linear.weight);
  init::ones_(linear.bias);
  CHECK(linear.forward(at::ones({3, 5, 4})).sizes() == at::IntArrayRef({3, 5, 2}));
  CHECK(linear.forward(at::ones({1, 4})).sum().item<float>() == 10);
  CHECK(parameters_of(Linear(4, 2, false)).size() == 1);

  std::ostringstream text;
  conv.pretty_print(text);
  linear.pretty_print(text);
  CHECK(text.str() == "Conv2d(3, 8, kernel=3, stride=2, padding=1)Linear(4, 2)");
}

TEST_CASE("members follow the module to another dtype") {
  Conv2d conv({.in = 3, .out = 4});
  conv.to(at::kDouble);
  CHECK((conv.weight.scalar_type() == at::kDouble));
  CHECK((conv.forward(at::ones({1, 3, 2, 2}, at::kDouble)).scalar_type() == at::kDouble));
}

TEST_CASE("impossible sizes are refused") {
  CHECK(testing::error_of([] { Conv2d({.in = 0, .out = 4}); }).kind() == ErrorKind::Usage);
  CHECK(testing::error_of([] { Conv2d({.in = 1, .out = 4, .padding = -1}); }).kind() == ErrorKind::Usage);
  CHECK(testing::error_of([] { Linear(3, 0); }).kind() == ErrorKind::Usage);
}
