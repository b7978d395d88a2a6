#include "testing.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>

#include "npu_train/nn/model.hpp"

using namespace npu_train;

TEST_CASE("blocks are chained in order") {
  Model model;
  model.name = "two";
  model.blocks = {{"a", [](const at::Tensor& x) { return x + 1; }}, {"b", [](const at::Tensor& x) { return x * 10; }}};
  model = chain_blocks(std::move(model));
  CHECK(model.forward(at::ones({1})).item<float>() == 20);
  CHECK(model.blocks.size() == 2);
  // The chain is independent of later changes to the list.
  model.blocks.clear();
  CHECK(model.forward(at::ones({1})).item<float>() == 20);
  CHECK(testing::error_of([] { chain_blocks(Model{}); }).kind() == ErrorKind::Usage);
}
