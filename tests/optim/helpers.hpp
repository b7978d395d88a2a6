// Shared parts of the tests of optimizers.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include <Eigen/Dense>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/base/state.hpp"
#include "npu_train/optim/optimizers.hpp"
#include "reference.hpp"

namespace npu_train::testing {

// Uses one thread: tiny tensors gain nothing from threads and lose much on a busy machine, and bit equality needs a fixed number anyway.
inline const bool kOneThread = [] {
  at::set_num_threads(1);
  return true;
}();

inline ParameterSet example_parameters(at::ScalarType type = at::kFloat) {
  at::manual_seed(11);
  ParameterSet set;
  set.add({.name = "conv.weight", .value = at::randn({4, 3, 2, 2}).to(type).set_requires_grad(true)});
  set.add({.name = "norm.weight", .value = at::randn({4}).to(type).set_requires_grad(true)});
  set.add({.name = "fc.weight", .value = at::randn({5, 7}).to(type).set_requires_grad(true)});
  set.add({.name = "fc.bias", .value = at::randn({5}).to(type).set_requires_grad(true)});
  return set;
}

inline ParameterSet deep_copy(const ParameterSet& set) {
  ParameterSet out;
  for (const auto& p : set) out.add({.name = p.name, .value = p.value.detach().clone().set_requires_grad(true), .group = p.group});
  return out;
}

inline void random_gradients(const ParameterSet& set, int seed) {
  at::manual_seed(static_cast<uint64_t>(seed));
  for (const auto& p : set) p.value.mutable_grad() = at::randn_like(p.value.detach());
}

inline Eigen::ArrayXd flat(const at::Tensor& t) {
  const auto d = t.detach().to(at::kDouble).contiguous();
  return Eigen::Map<const Eigen::ArrayXd>(d.const_data_ptr<double>(), d.numel());
}

inline double largest_difference(const at::Tensor& t, const Eigen::ArrayXd& reference) { return (flat(t) - reference).abs().maxCoeff(); }

inline StepDecision found(double value) { return {.inv_scale = {}, .found_inf = at::full({}, value, at::kFloat)}; }

inline const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = {"sgd",     "adam",     "adamw", "lamb",      "rmsprop",
                                                 "adagrad", "adadelta", "lion",  "adafactor", "muon"};
  return names;
}

inline std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const ParameterSet& set, double lr = 0.05, double decay = 0.02) {
  OptimizerRegistry registry("optimizer");
  add_builtin_optimizers(registry);
  return registry.make({.name = name, .options = ConfigNode{{"lr", lr}, {"weight_decay", decay}}, .mark = {}}, "optimizer", set);
}

// Runs one parameter and one gradient per step through an optimizer and a reference.
template <class Reference>
double compare_with(Optimizer& optimizer, std::vector<Reference> references, int steps) {
  std::vector<Eigen::ArrayXd> expected;
  for (const auto& p : optimizer.parameters()) expected.push_back(flat(p.value));
  double worst = 0;
  for (int t = 0; t < steps; ++t) {
    random_gradients(optimizer.parameters(), 100 + t);
    for (size_t i = 0; i < expected.size(); ++i) references[i].step(expected[i], flat(optimizer.parameters()[i].value.grad()));
    optimizer.step();
    for (size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, largest_difference(optimizer.parameters()[i].value, expected[i]));
  }
  return worst;
}

inline nlohmann::json fixture() {
  std::ifstream in(std::string(NPU_TRAIN_SOURCE_DIR) + "/tests/fixtures/optim_reference.json");
  REQUIRE(in.good());
  return nlohmann::json::parse(in);
}

inline at::Tensor tensor_of(const nlohmann::json& values, const nlohmann::json& shape, at::ScalarType type) {
  const auto v = values.get<std::vector<double>>();
  return at::tensor(v, at::kDouble).reshape(shape.get<std::vector<int64_t>>()).to(type);
}

// Returns the largest distance from PyTorch's results (in double) over all steps of a case of the fixture.
inline double distance_from_pytorch(const nlohmann::json& data, const nlohmann::json& c, at::ScalarType type,
                                    const std::function<std::unique_ptr<Optimizer>(const ParameterSet&, const nlohmann::json&)>& make) {
  ParameterSet set;
  for (const auto& [name, shape] : data["shapes"].items())
    set.add({.name = name, .value = tensor_of(data["start"][name], shape, type).set_requires_grad(true)});
  const auto optimizer = make(set, c["options"]);
  double worst = 0;
  for (size_t t = 0; t < c["values"].size(); ++t) {
    for (const auto& p : set) p.value.mutable_grad() = tensor_of(data["gradients"][t][p.name], data["shapes"][p.name], type);
    optimizer->set_lr(c["lr"][t]);
    optimizer->step();
    for (const auto& p : set) {
      const auto expected = c["values"][t][p.name].get<std::vector<double>>();
      worst = std::max(worst, largest_difference(
                                  p.value, Eigen::Map<const Eigen::ArrayXd>(expected.data(), static_cast<Eigen::Index>(expected.size()))));
    }
  }
  return worst;
}

}  // namespace npu_train::testing
