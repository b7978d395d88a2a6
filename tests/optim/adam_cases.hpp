// Shared checks of Adam and AdamW, which differ only in the place of the weight decay.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "helpers.hpp"

namespace npu_train::testing {

template <class Rule>
void check_against_reference(AdamReference::Kind kind) {
  for (const double decay : {0.0, 0.1})
    for (const double eps : {1e-8, 1e-3}) {
      CAPTURE(decay);
      CAPTURE(eps);
      for (const auto type : {at::kDouble, at::kFloat}) {
        Rule o(example_parameters(type), {.lr = 0.02, .betas = {0.8, 0.95}, .eps = eps, .weight_decay = decay});
        const AdamReference r{.kind = kind, .lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = eps, .decay = decay};
        CHECK(compare_with(o, std::vector<AdamReference>(4, r), 10) < (type == at::kDouble ? 1e-7 : 5e-6));
      }
    }
}

/// Compares an optimizer with PyTorch. `name` is its name in the cases of the fixture.
template <class Rule, class Options>
void check_against_pytorch(const std::string& name) {
  const auto data = fixture();
  int cases = 0;
  for (const auto& c : data["optimizers"]) {
    if (c["optimizer"] != name) continue;
    CAPTURE(c["name"].template get<std::string>());
    const auto make = [](const ParameterSet& set, const nlohmann::json& o) -> std::unique_ptr<Optimizer> {
      Options options{.lr = o["lr"], .weight_decay = o.value("weight_decay", 0.0)};
      if (o.contains("betas")) options.betas = o["betas"].template get<std::vector<double>>();
      options.eps = o.value("eps", 1e-8);
      return std::make_unique<Rule>(set, options);
    };
    CHECK(distance_from_pytorch(data, c, at::kDouble, make) < 1e-7);
    CHECK(distance_from_pytorch(data, c, at::kFloat, make) < data["tolerance"]["float32"].get<double>() * 5);
    ++cases;
  }
  CHECK(cases >= 3);
}

template <class Rule>
void check_counted_steps() {
  const auto set = example_parameters();
  Rule o(set);
  random_gradients(set, 1);
  o.step(found(0));
  o.step(found(1));
  o.step();
  o.zero_grad();
  set[0].value.mutable_grad() = at::ones({4, 3, 2, 2});
  o.step(found(0));
  CHECK(o.state().tensors.at("step/conv.weight").template item<float>() == 3);
  CHECK(o.state().tensors.at("step/fc.bias").template item<float>() == 2);
}

}  // namespace npu_train::testing
