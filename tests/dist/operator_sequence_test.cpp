// The operators that ranks compare, and operators that they must ignore.
#include "dist/operator_sequence.hpp"

#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/variable.h>

#include "testing.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::OperatorSequence;

TEST_CASE("OperatorSequence has what a thread and its backward pass run, and nothing of what is unseen") {
  const auto x = at::ones({4}).requires_grad_();
  OperatorSequence sequence;
  const auto loss = x.exp().sum();
  {
    const OperatorSequence::Unseen unseen;
    x.detach().narrow(0, 0, 2);
  }
  loss.backward();
  const auto names = sequence.stop();
  CHECK(has(names, "aten::exp\n"));
  CHECK(has(names, "aten::sum\n"));
  CHECK(has(names, "autograd::engine::evaluate_function: ExpBackward0\n"));
  CHECK_FALSE(has(names, "aten::narrow\n"));
  x.detach().narrow(0, 0, 2);
  CHECK(sequence.stop().empty());
}
