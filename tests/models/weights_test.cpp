#include "testing.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

#include "models/by_path.hpp"
#include "npu_train/models/weights.hpp"

using namespace npu_train;
using npu_train::testing::ByPath;
using npu_train::testing::vit_shapes;

namespace {

struct HeadNet : torch::nn::Module {
  HeadNet() {
    fc1 = register_module("fc1", torch::nn::Linear(4, 3));
    bn = register_module("bn", torch::nn::BatchNorm1d(3));
    head = register_module("head", torch::nn::Linear(3, 2));
  }
  torch::nn::Linear fc1{nullptr}, head{nullptr};
  torch::nn::BatchNorm1d bn{nullptr};
};

Model head_model(const std::shared_ptr<HeadNet>& net) {
  Model model;
  model.name = "net";
  model.module = net;
  model.head = "head";
  return model;
}

NamedTensors copy_of(const torch::nn::Module& module, const std::string& prefix = "") {
  NamedTensors out;
  for (const auto& [name, value] : named_state(module)) out.emplace_back(prefix + name, value.detach().clone());
  return out;
}

bool contains(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

void without(NamedTensors& tensors, const std::string& name) {
  std::erase_if(tensors, [&](const auto& t) { return t.first == name; });
}

at::Tensor& at_name(NamedTensors& tensors, const std::string& name) {
  for (auto& [n, value] : tensors)
    if (n == name) return value;
  FAIL("no ", name);
  return tensors.front().second;
}

}  // namespace

TEST_CASE("everything fits: parameters and buffers are copied, other dtypes converted") {
  const auto from = std::make_shared<HeadNet>(), to = std::make_shared<HeadNet>();
  from->bn->running_mean.fill_(3);
  from->bn->num_batches_tracked.fill_(7);
  auto tensors = copy_of(*from);
  at_name(tensors, "fc1.weight") = at_name(tensors, "fc1.weight").to(at::kDouble);
  Model model = head_model(to);
  const auto report = load_weights(model, tensors);
  CHECK(report.complete());
  CHECK(report.loaded.size() == 9);
  CHECK(report.removed_prefixes.empty());
  CHECK(at::equal(to->fc1->weight, from->fc1->weight));
  CHECK((to->fc1->weight.scalar_type() == at::kFloat));
  CHECK(to->fc1->weight.requires_grad());
  CHECK(to->bn->running_mean[0].item<float>() == 3);
  CHECK(to->bn->num_batches_tracked.item<int64_t>() == 7);
}

TEST_CASE("a counter of batches is taken in whatever dtype it was cast to with the rest") {
  const auto from = std::make_shared<HeadNet>(), to = std::make_shared<HeadNet>();
  from->bn->num_batches_tracked.fill_(7);
  auto tensors = copy_of(*from);
  for (auto& [name, tensor] : tensors) tensor = tensor.to(at::kHalf);
  Model model = head_model(to);
  CHECK(load_weights(model, tensors).complete());
  CHECK(to->bn->num_batches_tracked.item<int64_t>() == 7);
  CHECK((to->bn->num_batches_tracked.scalar_type() == at::kLong));
}

TEST_CASE("missing, unexpected and misshapen names") {
  const auto net = std::make_shared<HeadNet>();
  auto tensors = copy_of(*net);
  without(tensors, "fc1.bias");
  without(tensors, "bn.num_batches_tracked");
  tensors.emplace_back("fc9.weight", at::ones({1}));
  at_name(tensors, "bn.weight") = at::ones({5});
  Model model = head_model(net);
  const auto report = load_weights(model, tensors, {.strict = false});
  CHECK(report.missing == std::vector<std::string>{"fc1.bias"});
  CHECK(report.unexpected == std::vector<std::string>{"fc9.weight"});
  REQUIRE(report.misshapen.size() == 1);
  CHECK(report.misshapen[0].name == "bn.weight");
  CHECK(report.misshapen[0].here == "[3]");
  CHECK(report.misshapen[0].given == "[5]");
  CHECK(report.fresh_head.empty());
  CHECK_FALSE(report.complete());
  CHECK_FALSE(report.fits());
  const auto text = report.str();
  for (const char* part : {"1 missing", "fc1.bias", "fc9.weight", "bn.weight [3] here, [5] in the file"})
    CHECK(text.find(part) != std::string::npos);
}

TEST_CASE("weights of another network are refused and leave the model unchanged; strict = false loads the tensors that fit") {
  struct Row {
    const char* name;
    std::function<void(NamedTensors&)> change;
    const char* part;
  };
  const Row rows[] = {
      {"missing", [](auto& t) { without(t, "fc1.bias"); }, "1 missing"},
      {"a different shape", [](auto& t) { at_name(t, "bn.weight") = at::ones({5}); }, "bn.weight [3] here, [5] in the file"},
      {"a different dtype", [](auto& t) { at_name(t, "bn.bias") = at::ones({3}, at::kComplexFloat); }, "bn.bias"},
      {"a further layer", [](auto& t) { t.emplace_back("fc2.weight", at::ones({1})); },
       "tensors of layers that the model does not have: fc2.weight"},
  };
  for (const auto& row : rows) {
    CAPTURE(std::string(row.name));
    const auto net = std::make_shared<HeadNet>();
    Model model = head_model(net);
    const at::Tensor before = net->fc1->weight.detach().clone();
    auto tensors = copy_of(*net, "module.");
    for (auto& [name, value] : tensors) name.erase(0, 7);
    at_name(tensors, "fc1.weight").fill_(9);
    row.change(tensors);
    const auto error = testing::error_of([&] { load_weights(model, tensors); });
    CHECK(error.kind() == ErrorKind::Checkpoint);
    CHECK(testing::has(error.what(), "another network"));
    CHECK(testing::has(error.what(), row.part));
    CHECK(testing::has(error.what(), "model.weights_strict=false"));
    CHECK(at::equal(net->fc1->weight, before));
    CHECK_FALSE(load_weights(model, tensors, {.strict = false}).fits());
    CHECK(net->fc1->weight.min().item<float>() == 9);
  }
}

TEST_CASE("what belongs to no series of layers is no other network: buffers of a tool, averages, an optimizer's state") {
  const auto net = std::make_shared<HeadNet>();
  Model model = head_model(net);
  auto tensors = copy_of(*net, "state_dict.");
  for (const char* name :
       {"state_dict.projector.weight", "optimizer.state.0.exp_avg", "state_dict_ema.fc1.weight", "state_dict.head2.weight"})
    tensors.emplace_back(name, at::ones({1}));
  const auto report = load_weights(model, tensors);
  CHECK(report.fits());
  CHECK(report.unexpected.size() == 4);
  CHECK(report.deeper.empty());
}

TEST_CASE("a head that is missing completely or partially keeps all its initial values") {
  for (const bool half : {false, true}) {
    const auto net = std::make_shared<HeadNet>();
    Model model = head_model(net);
    const at::Tensor weight = net->head->weight.detach().clone();
    auto tensors = copy_of(*net);
    at_name(tensors, "head.weight").fill_(9);
    if (!half) without(tensors, "head.weight");
    without(tensors, "head.bias");
    const auto report = load_weights(model, tensors);
    CHECK(report.fits());
    CHECK_FALSE(report.complete());
    CHECK(report.fresh_head == "head");
    CHECK(at::equal(net->head->weight, weight));
    CHECK(testing::error_of([&] { load_weights(*net, tensors); }).kind() == ErrorKind::Checkpoint);  // the module's head is not known
  }
}

TEST_CASE("nothing fits") {
  const auto net = std::make_shared<HeadNet>();
  CHECK(testing::error_of([&] { load_weights(*net, {{"other.weight", at::ones({2})}}); }).kind() == ErrorKind::Checkpoint);
  CHECK(testing::error_of([&] { load_weights(*net, {}); }).kind() == ErrorKind::Checkpoint);
}

TEST_CASE("values that are not finite are loaded and reported") {
  auto net = std::make_shared<HeadNet>();
  auto model = head_model(net);
  NamedTensors tensors;
  for (const auto& [name, value] : named_state(*net)) tensors.emplace_back(name, value.detach().clone());
  const auto set = [&](const std::string& name, double number) {
    for (auto& [key, value] : tensors)
      if (key == name) value.view(-1)[0] = number;
  };
  CHECK(load_weights(model, tensors).sound());
  set("fc1.weight", std::numeric_limits<double>::quiet_NaN());
  set("bn.running_var", std::numeric_limits<double>::infinity());
  set("head.bias", 3e38);  // finite, although twice the value is not
  tensors.emplace_back("unused", at::full({2}, std::numeric_limits<double>::quiet_NaN()));
  const auto report = load_weights(model, tensors);
  CHECK(report.not_finite == std::vector<std::string>{"fc1.weight", "bn.running_var"});
  CHECK(report.fits());
  CHECK_FALSE(report.sound());
  CHECK(testing::has(report.str(), "NaN or infinite: fc1.weight, bn.running_var"));
  CHECK(not_finite_tensors({{"a", at::full({4}, 3e38f)}, {"b", at::full({2}, 1e308, at::kDouble)}}).empty());
  CHECK(not_finite_tensors({{"a", at::full({4}, -std::numeric_limits<float>::infinity())}}) == std::vector<std::string>{"a"});
}

TEST_CASE("prefixes of wrappers are removed and said") {
  for (const std::string prefix :
       {"module.", "model.", "_orig_mod.", "state_dict.", "model_state_dict.", "net.", "state_dict.module._orig_mod."}) {
    const auto from = std::make_shared<HeadNet>(), to = std::make_shared<HeadNet>();
    Model model = head_model(to);
    const auto report = load_weights(model, copy_of(*from, prefix));
    CHECK(report.complete());
    CHECK(at::equal(to->head->bias, from->head->bias));
    CHECK(report.removed_prefixes.size() == (prefix.find(".m") != std::string::npos ? 3 : 1));
    CHECK(report.str().find("prefixes removed: ") != std::string::npos);
  }
}

TEST_CASE("a prefix that the model has itself stays") {
  struct Outer : torch::nn::Module {
    Outer() { model = register_module("model", std::make_shared<HeadNet>()); }
    std::shared_ptr<HeadNet> model;
  } from, to;
  const auto report = load_weights(to, copy_of(from));
  CHECK(report.complete());
  CHECK(report.removed_prefixes.empty());
  CHECK(at::equal(to.model->head->bias, from.model->head->bias));
  // Removes a second wrapper, too.
  CHECK(load_weights(to, copy_of(from, "module.")).removed_prefixes == std::vector<std::string>{"module."});
}

TEST_CASE("of two names for one parameter the exact one wins") {
  const auto net = std::make_shared<HeadNet>();
  auto tensors = copy_of(*net);
  tensors.insert(tensors.begin(), {"module.fc1.bias", at::full({3}, 5.0)});
  const auto report = load_weights(*net, tensors);
  CHECK(report.unexpected == std::vector<std::string>{"module.fc1.bias"});
  CHECK(net->fc1->bias[0].item<float>() != 5);
}

TEST_CASE("a head with a different size keeps all its initial values, and is reported") {
  const auto net = std::make_shared<HeadNet>();
  const at::Tensor weight = net->head->weight.detach().clone(), bias = net->head->bias.detach().clone();
  auto tensors = copy_of(*net);
  at_name(tensors, "fc1.weight").fill_(4);
  at_name(tensors, "head.weight") = at::ones({10, 3});
  at_name(tensors, "head.bias") = at::ones({2});  // its size fits by chance
  Model model = head_model(net);
  const auto report = load_weights(model, tensors);
  CHECK(report.fresh_head == "head");
  CHECK(contains(report.loaded, "fc1.weight"));
  CHECK_FALSE(contains(report.loaded, "head.bias"));
  CHECK(at::equal(net->head->weight, weight));
  CHECK(at::equal(net->head->bias, bias));
  CHECK(net->fc1->weight.min().item<float>() == 4);
  CHECK(report.str().find("head 'head' has a different size in the file") != std::string::npos);
}

TEST_CASE("fused and split projections") {
  struct Fused : torch::nn::Module {
    Fused() {
      weight = register_parameter("in_proj_weight", at::randn({6, 2}));
      bias = register_parameter("in_proj_bias", at::randn({6}));
    }
    at::Tensor weight, bias;
  } fused;
  struct Split : torch::nn::Module {
    Split() {
      for (const char* name : {"q_proj", "k_proj", "v_proj"}) register_module(name, torch::nn::Linear(2, 2));
    }
  } split;
  auto report = load_weights(split, copy_of(fused));
  CHECK(report.complete());
  CHECK(report.converted.size() == 6);
  CHECK(at::equal(split.named_parameters()["k_proj.weight"], fused.weight.narrow(0, 2, 2)));
  CHECK(at::equal(split.named_parameters()["v_proj.bias"], fused.bias.narrow(0, 4, 2)));

  Fused back;
  report = load_weights(back, copy_of(split));
  CHECK(report.complete());
  CHECK(report.converted.size() == 2);
  CHECK(at::equal(back.weight, fused.weight));
  CHECK(at::equal(back.bias, fused.bias));

  // If one part is missing, the fused tensor is missing, and the other parts are unused.
  auto part = copy_of(split);
  without(part, "k_proj.weight");
  report = load_weights(back, part, {.strict = false});
  CHECK(report.missing == std::vector<std::string>{"in_proj_weight"});
}

TEST_CASE("names of torchvision's published ViT files") {
  const ByPath from(vit_shapes());
  ByPath to(vit_shapes());
  auto tensors = named_state(from);
  for (auto& [name, value] : tensors)
    for (const auto& [ours, published] : {std::pair{".mlp.0.", ".mlp.linear_1."}, {".mlp.3.", ".mlp.linear_2."}})
      if (const auto at = name.find(ours); at != std::string::npos) name.replace(at, std::strlen(ours), published);
  CHECK(load_weights(to, tensors).complete());
  for (size_t i = 0; i < tensors.size(); ++i) CHECK(at::equal(named_state(to)[i].second, tensors[i].second));
}

TEST_CASE("a dtype that cannot be converted is misshapen") {
  const auto net = std::make_shared<HeadNet>();
  auto tensors = copy_of(*net);
  at_name(tensors, "fc1.bias") = at_name(tensors, "fc1.bias").to(at::kComplexFloat);
  const auto report = load_weights(*net, tensors, {.strict = false});
  REQUIRE(report.misshapen.size() == 1);
  CHECK(report.misshapen[0].given == "ComplexFloat");
}

TEST_CASE("each list of the report has as many names as its count, shown or counted") {
  for (const size_t n : {1, 2, 5, 8, 9, 40}) {
    CAPTURE(n);
    WeightsReport report;
    for (size_t i = 0; i < n; ++i) {
      const auto number = "<" + std::to_string(i) + ">";
      report.missing.push_back("m" + number);
      report.unexpected.push_back("u" + number);
      report.misshapen.push_back({"s" + number, "[1]", "[2]"});
      report.converted.push_back("c" + number);
    }
    const auto text = report.str();
    CHECK(text.starts_with(c10::str("weights: 0 loaded, ", n, " missing, ", n, " unexpected, ", n, " misshapen\n")));
    for (const std::string list : {"  missing: ", "  unexpected: ", "  misshapen: ", "  converted: "}) {
      const auto line = text.substr(text.find(list), text.find('\n', text.find(list)) - text.find(list));
      const auto named = static_cast<size_t>(std::count(line.begin(), line.end(), '<'));
      const auto more = line.find(", and ");
      CHECK_MESSAGE(named + (more == std::string::npos ? 0 : std::stoul(line.substr(more + 6))) == n, line);
    }
  }
}
