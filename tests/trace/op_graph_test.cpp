#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/storage.hpp"
#include "npu_train/trace/op_graph.hpp"
#include "npu_train/trace/recorded_op.hpp"

using namespace npu_train;
using namespace npu_train::detail;

namespace {

// Declares a layer as nn/layer_scope.hpp does.
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
  CHECK_FALSE(linear.tensor(2));  // it has no bias
  CHECK(softmax.args[1].toInt() == 1);
  CHECK(softmax.reads == linear.gives);
  const auto& values = graph.values();
  CHECK(values[linear.reads[0]].given_by == GraphValue::kOutside);
  CHECK(values[linear.reads[0]].storage == storage_of(x));
  CHECK(values[linear.gives[0]].given_by == 0);
  CHECK((values[linear.gives[0]].readers == std::vector<size_t>{1}));
  CHECK(graph.is_result(softmax.gives[0]));
  CHECK_FALSE(graph.is_result(linear.gives[0]));
  CHECK(graph.only_reader(0) == 1);
  CHECK(graph.only_reader(1) == -1);  // -1, because the caller reads it, too
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
  CHECK(graph.only_reader(1) == -1);  // -1, because the operator reads it twice
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

TEST_CASE("an operator gives several values, in the order of its outputs and of their lists, each with its own readers") {
  const at::Tensor x = at::randn({2, 6});
  const auto graph = OpGraph::record([&] {
    const auto [values, indices] = at::topk(x, 4);
    const auto halves = at::chunk(values, 2, 1);
    return Outputs({{"indices", indices}, {"sum", at::add(halves[1], at::neg(halves[0]))}});
  });
  REQUIRE(graph.ops().size() == 4);
  const auto &topk = graph.ops()[0], &chunk = graph.ops()[1], &neg = graph.ops()[2], &add = graph.ops()[3];
  REQUIRE(topk.gives.size() == 2);
  REQUIRE(chunk.gives.size() == 2);
  CHECK(topk.gives[0] != topk.gives[1]);
  for (const size_t value : topk.gives) CHECK(graph.values()[value].given_by == 0);
  CHECK((chunk.reads == std::vector<size_t>{topk.gives[0]}));
  CHECK(graph.values()[topk.gives[1]].readers.empty());
  CHECK(graph.is_result(topk.gives[1]));
  CHECK_FALSE(graph.is_result(topk.gives[0]));
  CHECK((neg.reads == std::vector<size_t>{chunk.gives[0]}));
  CHECK((add.reads == std::vector<size_t>{chunk.gives[1], neg.gives[0]}));
  CHECK(graph.only_reader(0) == -1);  // -1, although one operator reads it: not a link of a chain
  CHECK(graph.position(1, 0) == -1);
  CHECK(graph.position(2, 1) == -1);
}

TEST_CASE("a network with two outputs: results have their order and names, and one that is read too is no link of a chain") {
  const at::Tensor x = at::randn({2, 3}), w = at::randn({4, 3});
  const auto graph = OpGraph::record([&] {
    const at::Tensor features = at::linear(x, w);
    return Outputs({{"logits", at::softmax(features, 1)}, {"features", features}});
  });
  REQUIRE(graph.ops().size() == 2);
  REQUIRE(graph.results().size() == 2);
  CHECK(graph.results()[0].name == "logits");
  CHECK(graph.results()[0].value == graph.ops()[1].gives[0]);
  CHECK(graph.results()[0].tensor.equal(at::softmax(at::linear(x, w), 1)));
  CHECK(graph.results()[1].name == "features");
  CHECK(graph.results()[1].value == graph.ops()[0].gives[0]);
  CHECK(graph.only_reader(0) == -1);  // -1, because the caller reads it, too
}

TEST_CASE("an input that is returned is a value from outside and a result, once for each time") {
  const at::Tensor x = at::randn({3});
  const auto graph = OpGraph::record([&] { return Outputs({{"first", x}, {"y", at::neg(x)}, {"again", x}}); });
  REQUIRE(graph.results().size() == 3);
  const size_t value = graph.results()[0].value;
  CHECK(value == graph.ops()[0].reads[0]);
  CHECK(value == graph.results()[2].value);
  CHECK(graph.values()[value].given_by == GraphValue::kOutside);
  CHECK(graph.results()[0].tensor.is_same(x));
  const auto untouched = OpGraph::record([&] { return x; });
  REQUIRE(untouched.results().size() == 1);
  CHECK(untouched.ops().empty());
  CHECK(untouched.values()[untouched.results()[0].value].storage == storage_of(x));
}

TEST_CASE("an undefined result is an error that names it") {
  const auto error = testing::error_of([] { OpGraph::record([] { return Outputs({{"logits", at::Tensor()}}); }); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(testing::has(error.what(), "logits"));
}

TEST_CASE("values are named by their parameter, by the first name of a tied one; others have no name") {
  const at::Tensor x = at::randn({2, 3}), w = at::randn({3, 3}), b = at::randn({3});
  const ParameterSet parameters({{"encoder.weight", w}, {"bias", b}, {"decoder.weight", w}});
  const auto forward = [&] {
    const at::Tensor encoded = at::linear(x, w, b);
    return at::linear(encoded, w.detach());
  };
  const auto graph = OpGraph::record(forward, parameters);
  std::string names;
  for (const auto& op : graph.ops()) {
    names += op.name() + ":";
    for (const size_t value : op.reads) names += " " + graph.values()[value].name;
    names += "; ";
  }
  CHECK(names == "linear:  encoder.weight bias; detach: encoder.weight; linear:  ; ");
  CHECK(graph.ops()[1].reads[0] == graph.ops()[0].reads[1]);
  for (const auto& op : graph.ops()) CHECK(graph.values()[op.gives[0]].name.empty());
}

TEST_CASE("another tensor of the same elements has the parameter's name, another piece of its memory has none") {
  const at::Tensor flat = at::randn({8}), w = flat.narrow(0, 0, 4), b = flat.narrow(0, 4, 4), alias = b.detach(), half = b.narrow(0, 0, 2);
  const auto graph = OpGraph::record([&] { return at::cat({w, alias, half, flat}); }, ParameterSet({{"w", w}, {"b", b}}));
  std::vector<std::string> names;
  for (const size_t value : graph.ops()[0].reads) names.push_back(graph.values()[value].name);
  CHECK((names == std::vector<std::string>{"w", "b", "", ""}));
  const auto tied = OpGraph::record([&] { return at::neg(alias); }, ParameterSet({{"b", b}, {"tied", alias}}));
  CHECK(tied.values()[0].name == "b");
}

TEST_CASE("buffers are named; the content that an operator writes over one has no name") {
  torch::nn::BatchNorm2d bn(3);
  ParameterSet parameters;
  for (const auto& p : bn->named_parameters()) parameters.add({"bn." + p.key(), p.value()});
  std::vector<std::pair<std::string, at::Tensor>> buffers;
  for (const auto& b : bn->named_buffers()) buffers.emplace_back("bn." + b.key(), b.value());
  const auto graph = OpGraph::record([&] { return bn->forward(at::ones({2, 3, 4, 4})); }, parameters, buffers);
  const auto op = [&](const std::string& name) {
    const auto found = std::find_if(graph.ops().begin(), graph.ops().end(), [&](const GraphOp& o) { return o.name() == name; });
    REQUIRE(found != graph.ops().end());
    return *found;
  };
  std::vector<std::string> read;
  for (const size_t value : op("batch_norm").reads) read.push_back(graph.values()[value].name);
  CHECK((read == std::vector<std::string>{"", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"}));
  const auto count = op("add");
  CHECK(graph.values()[count.reads[0]].name == "bn.num_batches_tracked");
  CHECK(graph.values()[count.gives[0]].storage == storage_of(bn->num_batches_tracked));
  CHECK(graph.values()[count.gives[0]].name.empty());
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

TEST_CASE("a composed operator is one operator, or those that it calls") {
  const at::Tensor x = at::randn({2, 3}), w = at::randn({4, 3}), b = at::randn({4});
  const auto forward = [&] { return at::linear(x, w, b); };
  const auto names = [](const OpGraph& graph) {
    std::string out;
    for (const auto& op : graph.ops()) out += op.name() + " ";
    return out;
  };
  CHECK(names(OpGraph::record(forward, {}, {}, [](const c10::OperatorHandle&) { return false; })) == "linear ");
  const auto parts = OpGraph::record(forward, {}, {}, [](const c10::OperatorHandle& op) { return op.schema().name() == "aten::linear"; });
  CHECK(names(parts) == "t addmm ");
  CHECK(parts.results()[0].value == parts.ops()[1].gives[0]);
  CHECK(at::equal(parts.results()[0].tensor, forward()));
}

TEST_CASE("a tensor that no operator gives, of the elements of one that is known, holds the same value") {
  const at::Tensor x = at::randn({2, 3});
  const auto graph = OpGraph::record([&] {
    at::Tensor y = x.neg();
    y.add_(1);
    return at::add(y.variable_data(), x.variable_data());
  });
  REQUIRE(graph.ops().size() == 3);
  CHECK((graph.ops()[2].reads == std::vector<size_t>{graph.ops()[1].gives[0], graph.ops()[0].reads[0]}));
}
