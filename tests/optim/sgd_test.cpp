#include "testing.hpp"

#include "helpers.hpp"

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

TEST_CASE("without momentum there is no state") {
  CHECK(Sgd(example_parameters(), {.momentum = 0}).state().tensors.empty());
  const auto state = Sgd(example_parameters()).state();
  CHECK(state.tensors.size() == 4);
  CHECK(state.tensors.count("momentum/fc.weight") == 1);
  CHECK(state.tensors.at("momentum/fc.weight").abs().sum().item<float>() == 0);
}
