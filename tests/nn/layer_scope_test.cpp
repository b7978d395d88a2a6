#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/nn/layer_scope.hpp"
#include "npu_train/trace/op_observer.hpp"

using namespace npu_train;

namespace {

// Names of the user scopes that RecordFunction shows to all callbacks, and so to a profiler.
std::vector<std::string> shown;

std::vector<std::string> scopes_of(const std::function<void()>& run) {
  shown.clear();
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& fn) {
                                                   shown.emplace_back(fn.name());
                                                   return std::unique_ptr<at::ObserverContext>();
                                                 }).scopes({at::RecordScope::USER_SCOPE}));
  run();
  at::removeCallback(handle);
  return shown;
}

}  // namespace

TEST_CASE("a layer returns the result of its forward, and profilers see its name") {
  const at::Tensor x = at::ones({3});
  const auto twice = [](const at::Tensor& t) { return t * 2; };
  CHECK(at::equal(in_layer("double", x, twice), x * 2));
  CHECK((scopes_of([&] { in_layer("double", x, twice); }) == std::vector<std::string>{"double"}));
  CHECK(scopes_of([&] { in_layer("", x, twice); }).empty());
  CHECK_THROWS(scopes_of([&] { in_layer("broken", x, [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("mine"); }); }));
}

TEST_CASE("declared layers nest, have inputs and outputs, and name the operators in them") {
  struct Listener : OpListener {
    std::vector<std::string> seen;
    void op_begins(const SeenOp& op) override {
      if (op.name == "relu_") seen.push_back("before relu_ " + std::to_string(op.inputs[0].toTensor().min().item<float>() < 0));
    }
    void op_ended(const SeenOp& op) override { seen.push_back(op.scope + ":" + op.library + "::" + op.name); }
    void layer_begins(const SeenLayer& layer) override {
      seen.push_back("begin " + layer.path + " " + std::to_string(layer.inputs.size()));
    }
    void layer_ended(const SeenLayer& layer) override { seen.push_back("end " + layer.path + " " + std::to_string(layer.outputs.size())); }
  } listener;
  const at::Tensor x = at::full({2, 2}, -1.0);
  const OpObserver observer({}, listener, true);
  in_layer("block", x, [](const at::Tensor& t) {
    const LayerScope inner("act");
    at::Tensor y = t.clone();
    return at::relu_(y);
  });
  CHECK((listener.seen == std::vector<std::string>{"begin block 1", "begin block.act 0", "block.act:aten::clone", "before relu_ 1",
                                                   "block.act:aten::relu_", "end block.act 0", "end block 1"}));
}
