#include "testing.hpp"

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "npu_train/base/storage.hpp"
#include "npu_train/trace/op_graph.hpp"
#include "npu_train/trace/recorded_op.hpp"

using namespace npu_train;
using namespace npu_train::detail;

namespace {

// A declared layer, as nn/layer_scope.hpp makes it.
struct Layer : RecordedOp {
  explicit Layer(const std::string& name)
      : RecordedOp(
            name, [] { return std::vector<c10::IValue>(); }, at::RecordScope::USER_SCOPE) {}
};

std::string layers_of(const OpGraph& graph) {
  std::string out;
  for (const auto& op : graph.ops()) out += op.name() + " [" + op.layer + "]; ";
  return out;
}

}  // namespace

TEST_CASE("operators with their options, who gives each value and who reads it") {
  const at::Tensor x = at::randn({2, 3}), w = at::randn({4, 3});
  const auto graph = OpGraph::record([&] { return at::softmax(at::linear(x, w), 1); });
  REQUIRE(graph.ops().size() == 2);
  const auto &linear = graph.ops()[0], &softmax = graph.ops()[1];
  CHECK(linear.name() == "linear");
  CHECK(linear.reads.size() == 2);
  CHECK(linear.tensor(1));
  CHECK_FALSE(linear.tensor(2));  // there is no bias
  CHECK(softmax.args[1].toInt() == 1);
  CHECK(softmax.reads == linear.gives);
  const auto& values = graph.values();
  CHECK(values[linear.reads[0]].given_by == GraphValue::kOutside);
  CHECK(values[linear.reads[0]].storage == storage_of(x));
  CHECK(values[linear.gives[0]].given_by == 0);
  CHECK((values[linear.gives[0]].readers == std::vector<size_t>{1}));
  CHECK(values[softmax.gives[0]].is_result);
  CHECK(graph.only_reader(0) == 1);
  CHECK(graph.only_reader(1) == -1);  // the caller reads it
  CHECK(graph.position(1, 0) == 0);
  CHECK(graph.position(0, 1) == -1);
}

TEST_CASE("a tensor that is changed in place holds one value after the other, and has one storage") {
  const at::Tensor x = at::randn({3});
  const auto graph = OpGraph::record([&] {
    at::Tensor y = x.neg();
    y.relu_();
    return y.add(y);
  });
  REQUIRE(graph.ops().size() == 3);
  const auto &neg = graph.ops()[0], &relu = graph.ops()[1], &add = graph.ops()[2];
  CHECK(relu.name() == "relu");
  CHECK(relu.reads == neg.gives);
  CHECK(relu.gives != neg.gives);
  CHECK(graph.values()[relu.gives[0]].storage == graph.values()[neg.gives[0]].storage);
  CHECK((add.reads == std::vector<size_t>{relu.gives[0], relu.gives[0]}));
  CHECK(graph.only_reader(0) == 1);
  CHECK(graph.only_reader(1) == -1);  // it reads it twice
}

TEST_CASE("views are aliases and no readers of the memory; tensors of lists are read") {
  const at::Tensor x = at::randn({2, 3}), w = at::randn({3, 4});
  const auto graph = OpGraph::record([&] { return at::cat({at::mm(x, w), x}, 1); });
  CHECK(graph.readers_of(storage_of(x)) == 2);
  const auto viewed = OpGraph::record([&] { return at::mm(x, w.t().t()); });
  REQUIRE(viewed.ops().size() == 3);
  CHECK(viewed.ops()[0].gives_view_of(storage_of(w)));
  CHECK(viewed.readers_of(storage_of(w)) == 1);
}

TEST_CASE("an operator knows the declared layers around it") {
  const at::Tensor x = at::randn({2, 3});
  const auto graph = OpGraph::record([&] {
    const Layer block("block");
    at::Tensor y = at::neg(x);
    {
      const Layer act("act");
      y = at::relu(y);
    }
    return at::exp(y);
  });
  CHECK(layers_of(graph) == "neg [block]; relu [block.act]; exp [block]; ");
  CHECK(layers_of(OpGraph::record([&] { return at::neg(x); })) == "neg []; ");
}
