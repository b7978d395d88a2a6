#include "testing.hpp"

#include "adam_cases.hpp"
#include "helpers.hpp"
#include "npu_train/optim/optimizers.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("SGD against a double-precision reference") {
  for (const double momentum : {0.0, 0.9})
    for (const double decay : {0.0, 0.05})
      for (const bool nesterov : {false, true}) {
        if (nesterov && momentum == 0) continue;
        CAPTURE(momentum);
        CAPTURE(decay);
        CAPTURE(nesterov);
        for (const auto type : {at::kDouble, at::kFloat}) {
          Sgd o(example_parameters(type), {.lr = 0.1, .momentum = momentum, .weight_decay = decay, .nesterov = nesterov});
          const SgdReference r{.lr = 0.1, .momentum = momentum, .decay = decay, .nesterov = nesterov};
          CHECK(compare_with(o, std::vector<SgdReference>(4, r), 10) < (type == at::kDouble ? 1e-12 : 5e-6));
        }
      }
}

TEST_CASE("SGD against PyTorch, step by step") {
  const auto data = fixture();
  int cases = 0;
  for (const auto& c : data["optimizers"]) {
    const auto& options = c["options"];
    if (c["optimizer"] != "sgd" || options.contains("dampening")) continue;
    CAPTURE(c["name"].get<std::string>());
    const auto make = [](const ParameterSet& set, const nlohmann::json& o) -> std::unique_ptr<Optimizer> {
      return std::make_unique<Sgd>(set, SgdOptions{.lr = o["lr"],
                                                   .momentum = o.value("momentum", 0.0),
                                                   .weight_decay = o.value("weight_decay", 0.0),
                                                   .nesterov = o.value("nesterov", false)});
    };
    CHECK(distance_from_pytorch(data, c, at::kDouble, make) < 1e-8);
    CHECK(distance_from_pytorch(data, c, at::kFloat, make) < data["tolerance"]["float32"].get<double>() * 5);
    ++cases;
  }
  CHECK(cases >= 6);
}

TEST_CASE("SGD: without momentum there is no state") {
  CHECK(Sgd(example_parameters(), {.momentum = 0}).state().tensors.empty());
  const auto state = Sgd(example_parameters()).state();
  CHECK(state.tensors.size() == 4);
  CHECK(state.tensors.count("momentum/fc.weight") == 1);
  CHECK(state.tensors.at("momentum/fc.weight").abs().sum().item<float>() == 0);
}

TEST_CASE("Adam against a double-precision reference") { check_against_reference<Adam>(AdamReference::Coupled); }

TEST_CASE("Adam against PyTorch, step by step") { check_against_pytorch<Adam, AdamOptions>("adam"); }

TEST_CASE("Adam: steps are counted per parameter, and only those taken") { check_counted_steps<Adam>(); }

TEST_CASE("AdamW against a double-precision reference") { check_against_reference<AdamW>(AdamReference::Decoupled); }

TEST_CASE("AdamW against PyTorch, step by step") { check_against_pytorch<AdamW, AdamWOptions>("adamw"); }

TEST_CASE("AdamW: steps are counted per parameter, and only those taken") { check_counted_steps<AdamW>(); }

TEST_CASE("LAMB against a double-precision reference") {
  for (const double decay : {0.0, 0.1})
    for (const auto type : {at::kDouble, at::kFloat}) {
      CAPTURE(decay);
      Lamb o(example_parameters(type), {.lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = decay});
      const AdamReference r{.kind = AdamReference::Lamb, .lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .decay = decay};
      CHECK(compare_with(o, std::vector<AdamReference>(4, r), 10) < (type == at::kDouble ? 1e-12 : 1e-5));
    }
}

TEST_CASE("LAMB: the bias correction of fp32 parameters keeps its digits") {
  ParameterSet set;
  set.add({.name = "w", .value = at::ones({2}).set_requires_grad(true)});
  Lamb o(set, {.lr = 1, .betas = {0.9, 0.99999}, .eps = 1, .weight_decay = 0});
  set[0].value.mutable_grad() = at::tensor({1.0f, 3.0f});
  o.step();
  const double r1 = 1.0 / 2, r2 = 3.0 / 4, trust = std::sqrt(2.0) / std::hypot(r1, r2);  // r = g / (|g| + eps)
  CHECK(set[0].value[0].item<double>() == doctest::Approx(1 - trust * r1).epsilon(2e-6));
  CHECK(set[0].value[1].item<double>() == doctest::Approx(1 - trust * r2).epsilon(2e-6));
}

TEST_CASE("LAMB: the ratio is 1 where a norm is 0") {
  ParameterSet set;
  set.add({.name = "w", .value = at::zeros({4}).set_requires_grad(true)});
  Lamb o(set, {.lr = 0.5, .weight_decay = 0});
  set[0].value.mutable_grad() = at::ones({4});
  o.step();
  CHECK(at::allclose(set[0].value, at::full({4}, -0.5), 1e-4, 0));
  set[0].value.mutable_grad() = at::zeros({4});
  Lamb still(set, {.weight_decay = 0});
  const auto before = set[0].value.detach().clone();
  still.step();
  CHECK(at::equal(set[0].value, before));
}

TEST_CASE("LAMB: a larger gradient gives the same first step: that is what the ratio is for") {
  for (const double scale : {1.0, 1000.0}) {
    ParameterSet set;
    set.add({.name = "w", .value = at::full({4}, 2.0).set_requires_grad(true)});
    Lamb o(set, {.lr = 0.1, .weight_decay = 0});
    set[0].value.mutable_grad() = at::full({4}, scale);
    o.step();
    CHECK(at::allclose(set[0].value, at::full({4}, 1.8), 1e-4, 0));
  }
}

TEST_CASE("RMSprop: TensorFlow's average of squares starts at 1, and eps is inside the root") {
  ParameterSet set;
  set.add({.name = "w", .value = at::zeros({3}, at::kDouble).set_requires_grad(true)});
  RmsProp o(set, {.lr = 1, .alpha = 0.9, .eps = 0.5, .tensorflow = true});
  set[0].value.mutable_grad() = at::full({3}, 2.0, at::kDouble);
  o.step();
  CHECK(set[0].value.sub(-2 / std::sqrt(0.9 + 0.1 * 4 + 0.5)).abs().max().item<double>() < 1e-12);
}

TEST_CASE("RMSprop: only what is configured has state") {
  const auto count = [](const RmsPropOptions& options) { return RmsProp(example_parameters(), options).state().tensors.size(); };
  CHECK(count({}) == 4);
  CHECK(count({.momentum = 0.9}) == 8);
  CHECK(count({.momentum = 0.9, .centered = true}) == 12);
}

TEST_CASE("Adagrad: with equal gradients step t has the length lr / sqrt(t)") {
  ParameterSet set;
  set.add({.name = "w", .value = at::zeros({3}, at::kDouble).set_requires_grad(true)});
  Adagrad o(set, {.lr = 0.5, .eps = 0});
  double expected = 0;
  for (int t = 1; t <= 10; ++t) {
    set[0].value.mutable_grad() = at::full({3}, 7.0, at::kDouble);
    o.step();
    expected -= 0.5 / std::sqrt(t);
    CHECK(set[0].value.sub(expected).abs().max().item<double>() < 1e-12);
  }
}

TEST_CASE("Adagrad: a skipped step does not count for lr_decay") {
  const auto set = example_parameters();
  Adagrad o(set, {.lr_decay = 0.1});
  random_gradients(set, 1);
  o.step(found(1));
  o.step(found(0));
  CHECK(o.state().tensors.at("step/fc.bias").item<float>() == 1);
}

TEST_CASE("Adadelta: the first step does not depend on the scale of the gradient, but for eps") {
  for (const double scale : {1.0, 1e4}) {
    ParameterSet set;
    set.add({.name = "w", .value = at::zeros({3}, at::kDouble).set_requires_grad(true)});
    Adadelta o(set, {.lr = 1, .rho = 0.9, .eps = 1e-6});
    set[0].value.mutable_grad() = at::full({3}, scale, at::kDouble);
    o.step();
    const double expected = -std::sqrt(1e-6) * scale / std::sqrt(0.1 * scale * scale + 1e-6);
    CHECK(set[0].value.sub(expected).abs().max().item<double>() < 1e-12);
  }
}

TEST_CASE("Adafactor: the state of a matrix is one number for each row and column") {
  const auto set = example_parameters();
  const Adafactor o(set);
  const auto state = o.state();
  CHECK(state.tensors.at("row_var/fc.weight").sizes() == at::IntArrayRef({5, 1}));
  CHECK(state.tensors.at("col_var/fc.weight").sizes() == at::IntArrayRef({1, 7}));
  CHECK(state.tensors.at("row_var/conv.weight").sizes() == at::IntArrayRef({4, 3, 2, 1}));
  CHECK(state.tensors.at("variance/fc.bias").sizes() == at::IntArrayRef({5}));
  CHECK(state.tensors.count("variance/fc.weight") == 0);
  CHECK(state.tensors.count("row_var/fc.bias") == 0);
}

TEST_CASE("Adafactor: the first step is relative to the norm of the parameter") {
  ParameterSet set;
  set.add({.name = "w", .value = at::full({4, 4}, 10.0, at::kDouble).set_requires_grad(true)});
  Adafactor o(set, {.lr = 0.01});
  set[0].value.mutable_grad() = at::full({4, 4}, 3.0, at::kDouble);
  o.step();
  CHECK(set[0].value.sub(10 - 0.01 * 10).abs().max().item<double>() < 1e-9);  // the update has a root mean square of 1 before it is scaled
}

TEST_CASE("Lion: each element moves by lr, whatever its gradient") {
  ParameterSet set;
  set.add({.name = "w", .value = at::ones({3}, at::kDouble).set_requires_grad(true)});
  Lion o(set, {.lr = 0.125, .weight_decay = 0.5});
  set[0].value.mutable_grad() = at::tensor({1e-9, -1e9, 3.0}, at::kDouble);
  o.step();
  const double decayed = 1 - 0.125 * 0.5;
  CHECK(at::allclose(set[0].value, at::tensor({decayed - 0.125, decayed + 0.125, decayed - 0.125}, at::kDouble), 0, 1e-12));
  CHECK(o.state().tensors.size() == 1);
}

namespace {

at::Tensor muon_step(const at::Tensor& gradient, MuonOptions options) {
  ParameterSet set;
  set.add({.name = "w", .value = at::zeros(gradient.sizes(), at::kDouble).set_requires_grad(true)});
  Muon o(set, options);
  set[0].value.mutable_grad() = gradient;
  o.step();
  return -set[0].value.detach();
}

}  // namespace

TEST_CASE("Muon: the update of a matrix has singular values near 1, whatever those of the gradient") {
  at::manual_seed(2);
  for (const auto& sizes : {std::vector<int64_t>{6, 9}, std::vector<int64_t>{9, 6}}) {
    const auto gradient = at::randn(sizes, at::kDouble) * 1e3;
    const auto update = muon_step(gradient, {.lr = 1, .momentum = 0}) / std::sqrt(std::max(1.0, static_cast<double>(sizes[0]) / sizes[1]));
    const auto values = at::linalg_svdvals(update);
    CHECK(values.min().item<double>() > 0.3);
    CHECK(values.max().item<double>() < 1.3);
    CHECK(at::linalg_svdvals(gradient).min().item<double>() > 100);
  }
}

TEST_CASE("Muon: a convolution is stepped as the matrix of its outputs, also in another memory format") {
  at::manual_seed(3);
  const auto gradient = at::randn({4, 3, 2, 2}, at::kDouble);
  const auto expected = muon_step(gradient.reshape({4, 12}), {.lr = 1}).reshape({4, 3, 2, 2});
  CHECK(at::allclose(muon_step(gradient, {.lr = 1}), expected, 0, 1e-12));
  CHECK(at::allclose(muon_step(gradient.contiguous(at::MemoryFormat::ChannelsLast), {.lr = 1}), expected, 0, 1e-12));
}

TEST_CASE("Muon: vectors, and matrices that `adamw` names, are stepped by AdamW") {
  const auto start = example_parameters();
  const auto mine = deep_copy(start), theirs = deep_copy(start);
  Muon muon(mine, {.lr = 0.01, .weight_decay = 0.1, .adamw = {"fc"}, .betas = {0.8, 0.9}, .adamw_eps = 1e-6});
  AdamW adamw(theirs, {.lr = 0.01, .betas = {0.8, 0.9}, .eps = 1e-6, .weight_decay = 0.1});
  for (int t = 0; t < 5; ++t) {
    random_gradients(mine, t);
    random_gradients(theirs, t);
    muon.step();
    adamw.step();
  }
  for (size_t i = 0; i < start.size(); ++i) {
    CAPTURE(start[i].name);
    CHECK(at::allclose(mine[i].value, theirs[i].value, 1e-5, 1e-6) == (start[i].name != "conv.weight"));
  }
  CHECK(muon.state().tensors.count("momentum/conv.weight") == 1);
  CHECK(muon.state().tensors.count("momentum/fc.weight") == 0);
}
