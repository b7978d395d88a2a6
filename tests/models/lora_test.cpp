#include "testing.hpp"

#include "npu_train/models/lora.hpp"

#include <torch/nn.h>

#include "npu_train/nn/checkpointing.hpp"
#include "npu_train/nn/init.hpp"
#include "npu_train/nn/layers.hpp"
#include "npu_train/nn/module_state.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;

namespace {

constexpr int64_t kIn = 6, kHidden = 12, kOut = 5;

struct Part : torch::nn::Module {
  explicit Part(bool packed) {
    in = register_module("in", std::make_shared<Linear>(kIn, kHidden, true, packed));
    out = register_module("out", std::make_shared<Linear>(kHidden, kOut, false, packed));
    for (const auto& p : parameters()) init::normal_(p, 0.5);
  }
  at::Tensor forward(const at::Tensor& x) { return out->forward(at::tanh(in->forward(x))); }
  std::shared_ptr<Linear> in, out;
};

struct LoraNet : torch::nn::Module {
  explicit LoraNet(bool packed = false) {
    block = register_module("block", std::make_shared<Part>(packed));
    head = register_module("head", torch::nn::Linear(kOut, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return head(block->forward(x)); }
  std::shared_ptr<Part> block;
  torch::nn::Linear head{nullptr};
};

at::Tensor value(const torch::nn::Module& module, const std::string& name) {
  const auto parameters = parameters_of(module);
  const auto* p = parameters.find(name);
  REQUIRE_MESSAGE(p != nullptr, name);
  return p->value;
}

// Fills the adapters, so that B A is not 0.
void fill_adapters(const torch::nn::Module& module) {
  for (const auto& p : parameters_of(module))
    if (has(p.name, "lora_B")) init::normal_(p.value, 0.3);
}

double difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

}  // namespace

TEST_CASE("a new adapter changes no bit of the output, and it alone is trained") {
  torch::manual_seed(1);
  LoraNet net;
  const auto x = torch::randn({7, kIn}), before = net.forward(x);
  CHECK(linear_layers(net) == std::vector<std::string>{"block.in", "block.out"});
  const auto report = apply_lora(net, {.rank = 2, .alpha = 6, .targets = {"block.*"}, .also_train = {"head.bias"}});
  CHECK(torch::equal(net.forward(x), before));
  CHECK(report.layers == std::vector<std::string>{"block.in", "block.out"});
  CHECK(report.trained == 2 * (kIn + kHidden + kHidden + kOut) + 3);
  CHECK(report.total == parameters_of(net).numel());
  std::vector<std::string> trained;
  for (const auto& p : parameters_of(net))
    if (p.value.requires_grad()) trained.push_back(p.name);
  CHECK(trained == std::vector<std::string>{"block.in.lora_A.weight", "block.in.lora_B.weight", "block.out.lora_A.weight",
                                            "block.out.lora_B.weight", "head.bias"});
}

TEST_CASE("first values are those of PEFT: A uniform below 1 / sqrt(in), B zero") {
  torch::manual_seed(2);
  torch::nn::Module net;
  net.register_module("0", std::make_shared<Linear>(400, 300));
  apply_lora(net, {.rank = 64, .targets = {"0"}});
  const auto a = value(net, "0.lora_A.weight"), b = value(net, "0.lora_B.weight");
  CHECK(a.sizes() == at::IntArrayRef({64, 400}));
  CHECK(b.sizes() == at::IntArrayRef({300, 64}));
  CHECK(a.abs().max().item<double>() <= 0.05);
  CHECK(a.std().item<double>() == doctest::Approx(0.05 / std::sqrt(3.0)).epsilon(0.02));
  CHECK(b.abs().max().item<double>() == 0);
  // Uses torch::nn::init, which PEFT calls.
  const auto reference = torch::empty({64, 400});
  torch::nn::init::kaiming_uniform_(reference, std::sqrt(5.0));
  CHECK(reference.std().item<double>() == doctest::Approx(a.std().item<double>()).epsilon(0.02));
}

TEST_CASE("outputs and gradients are those of W x + (alpha / rank) B A x, packed or not, also recomputed") {
  for (const bool packed : {false, true})
    for (const bool recomputed : {false, true}) {
      CAPTURE(packed);
      CAPTURE(recomputed);
      torch::manual_seed(3);
      LoraNet net(packed);
      apply_lora(net, {.rank = 3, .alpha = 4.5, .targets = {"in", "out"}});
      fill_adapters(net);
      const auto x = torch::randn({1100, kIn});  // enough rows for packed weights
      const auto weight = [&](const std::string& layer) {
        const auto a = value(net, layer + ".lora_A.weight").detach().clone().requires_grad_();
        const auto b = value(net, layer + ".lora_B.weight").detach().clone().requires_grad_();
        return std::tuple(value(net, layer + ".weight").detach() + 1.5 * torch::mm(b, a), a, b);
      };
      const auto first = weight("block.in"), second = weight("block.out");
      const auto h = at::tanh(at::linear(x, std::get<0>(first), value(net, "block.in.bias").detach()));
      const auto expected = at::linear(h, std::get<0>(second));
      const auto block = [&](const at::Tensor& t) { return net.block->forward(t); };
      const auto y = recomputed ? checkpoint(block, x) : block(x);
      CHECK(difference(y, expected) < 1e-5);
      const auto up = torch::randn_like(y);
      y.backward(up);
      expected.backward(up);
      for (const auto& [layer, weights] : {std::pair("block.in", first), std::pair("block.out", second)}) {
        CHECK(difference(value(net, std::string(layer) + ".lora_A.weight").grad(), std::get<1>(weights).grad()) < 1e-3);
        CHECK(difference(value(net, std::string(layer) + ".lora_B.weight").grad(), std::get<2>(weights).grad()) < 1e-3);
        CHECK_FALSE(value(net, std::string(layer) + ".weight").grad().defined());
      }
    }
}

TEST_CASE("dropout is on the input of A, in training alone") {
  torch::manual_seed(4);
  LoraNet net;
  apply_lora(net, {.rank = 2, .dropout = 0.5, .targets = {"block.in"}});
  fill_adapters(net);
  const auto x = torch::randn({4, kIn});
  auto& in = *net.block->in;
  const auto base = at::linear(x, in.weight, in.bias);
  torch::manual_seed(5);
  const auto dropped = in.forward(x);
  torch::manual_seed(5);
  const auto mask = torch::dropout(torch::ones_like(x), 0.5, true);
  const auto a = value(net, "block.in.lora_A.weight"), b = value(net, "block.in.lora_B.weight");
  CHECK(difference(dropped, base + at::linear(at::linear(x * mask, a), b)) < 1e-5);
  net.eval();
  CHECK(difference(in.forward(x), base + at::linear(at::linear(x, a), b)) < 1e-5);
}

TEST_CASE("merged weights give the outputs of the adapters, by module and by tensors alike") {
  torch::manual_seed(6);
  LoraNet net;
  const auto names = parameters_of(net).size();
  apply_lora(net, {.rank = 2, .alpha = 3, .targets = {"*"}});
  fill_adapters(net);
  const auto x = torch::randn({4, kIn}), expected = net.forward(x);
  const auto tensors = named_state(net);
  CHECK(has_lora(tensors));
  const auto merged = merged_lora(tensors, 1.5);
  CHECK_FALSE(has_lora(merged));
  CHECK(merge_lora(net) == 2);
  CHECK(merge_lora(net) == 0);
  CHECK(parameters_of(net).size() == names);
  CHECK(difference(net.forward(x), expected) < 1e-5);
  REQUIRE(merged.size() == names);
  for (const auto& tensor : merged) CHECK_MESSAGE(torch::equal(tensor.second, value(net, tensor.first)), tensor.first);
  apply_lora(net, {.rank = 1, .targets = {"block.in"}});  // another adapter, on the merged weights
  CHECK(difference(net.forward(x), expected) < 1e-5);
}

TEST_CASE("adapters follow their layer's dtype, and merge in the wider one") {
  torch::manual_seed(7);
  LoraNet net;
  net.to(torch::kBFloat16);
  apply_lora(net, {.rank = 2, .targets = {"block.in"}});
  CHECK(((value(net, "block.in.lora_A.weight").scalar_type() == at::kBFloat16)));
  CHECK(((net.forward(torch::randn({2, kIn}).to(torch::kBFloat16)).scalar_type() == at::kBFloat16)));
  const auto w = torch::randn({4, 3}).to(torch::kBFloat16), a = torch::randn({1, 3}), b = torch::randn({4, 1});
  const auto merged = merged_lora({{"x.weight", w}, {"x.lora_A.weight", a}, {"x.lora_B.weight", b}}, 0.5);
  REQUIRE(merged.size() == 1);
  CHECK(((merged[0].second.scalar_type() == at::kFloat)));
  CHECK(difference(merged[0].second, w.to(at::kFloat) + 0.5 * b * a) < 1e-6);
}

TEST_CASE("what cannot be adapted is refused, and the model stays as it is") {
  LoraNet net;
  const auto refused = [&](LoraOptions options, const std::string& words) {
    const auto error = error_of([&] { apply_lora(net, options); });
    CHECK(error.kind() == ErrorKind::Usage);
    CHECK_MESSAGE(has(error.what(), words), error.what());
  };
  refused({.targets = {"attention.*"}}, "'attention.*' matches no linear layer of the model; it has block.in, block.out");
  refused({.targets = {"head"}}, "'head' matches no linear layer");  // head is a torch::nn::Linear, not this library's
  refused({.targets = {"block"}, .also_train = {"tail"}}, "'tail' matches no parameter of the model; it has block.in.weight");
  refused({}, "targets is empty");
  refused({.rank = -1, .targets = {"block"}}, "rank -1");
  refused({.dropout = 1, .targets = {"block"}}, "dropout 1");
  for (const auto& p : parameters_of(net)) CHECK(p.value.requires_grad());
  apply_lora(net, {.targets = {"block.in"}});
  refused({.targets = {"block.out"}}, "'block.in' has an adapter already");
  torch::nn::Sequential plain(torch::nn::Linear(2, 2));
  CHECK(has(error_of([&] { apply_lora(*plain, {.targets = {"0"}}); }).what(), "npu_train::Linear"));
}

TEST_CASE("tensors of adapters that do not belong together are refused") {
  const auto w = torch::randn({4, 3}), a = torch::randn({2, 3}), b = torch::randn({4, 2});
  const auto refused = [&](const NamedTensors& tensors) {
    CHECK(error_of([&] { merged_lora(tensors, 1); }).kind() == ErrorKind::Checkpoint);
  };
  refused({{"x.weight", w}, {"x.lora_A.weight", a}});
  refused({{"x.lora_A.weight", a}, {"x.lora_B.weight", b}});
  refused({{"x.weight", w}, {"x.lora_A.weight", b}, {"x.lora_B.weight", a}});
  refused({{"x.weight", w[0]}, {"x.lora_A.weight", a}, {"x.lora_B.weight", b}});
  refused({{"x.weight", w}, {"x.lora_A.weight", a}, {"x.lora_B.weight", b}, {"y.lora_A.weight", a}});
}
