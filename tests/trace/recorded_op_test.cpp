#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/trace/op_observer.hpp"
#include "npu_train/trace/recorded_op.hpp"

using namespace npu_train;
using npu_train::detail::RecordedOp;

TEST_CASE("an operation without a dispatcher is shown with its inputs and output, and its inputs are not made without a listener") {
  const at::Tensor x = at::ones({2, 3});
  int made = 0;
  const auto twice = [&] {
    RecordedOp record("aten::linear", [&] { return ++made, std::vector<c10::IValue>{x}; });
    return record.result(at::mul(x, 2));
  };
  CHECK(twice().equal(at::full({2, 3}, 2.0)));
  CHECK(made == 0);
  std::vector<std::string> seen;
  {
    const OpObserver observer(
        {},
        [&](const SeenOp& op) {
          seen.push_back(op.library + "::" + op.name);
          CHECK(op.inputs[0].toTensor().is_same(x));
          CHECK(op.output.sizes() == x.sizes());
        },
        /*every=*/true);
    twice();
  }
  CHECK(made == 1);
  CHECK((seen == std::vector<std::string>{"aten::linear"}));  // without the product, which is a part of it
}
