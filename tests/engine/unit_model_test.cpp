// Units of networks that a program defines in code, and their connection with a strategy.
#include "testing.hpp"

#include "engine/unit_model.hpp"

#include <torch/nn/modules/linear.h>

#include "npu_train/train/model_task.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Records the units that it is given, and those that it runs.
class Divided final : public SingleDeviceStrategy, ShardedUnits {
 public:
  Sharding sharding() const override { return Sharding::Parameters; }
  ShardedUnits* units() override { return this; }
  void set(std::vector<ParameterUnit> units) override { given = std::move(units); }
  at::Tensor run(size_t unit, const UnitForward& forward, const at::Tensor& x) override {
    ran.push_back(unit);
    return forward(x);
  }
  std::vector<ParameterUnit> given;
  std::vector<size_t> ran;
};

using Layer = std::shared_ptr<torch::nn::LinearImpl>;

Unit unit_of(const std::string& name, const Layer& layer) {
  return {name, layer, [layer](const at::Tensor& x) { return layer->forward(x); }};
}

struct FourLayers : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    auto y = x;
    for (const auto& unit : listed) y = unit(y);
    return y;
  }
  std::vector<Unit> units() const { return listed; }

  Layer first = register_module("first", std::make_shared<torch::nn::LinearImpl>(3, 3));
  Layer second = register_module("second", std::make_shared<torch::nn::LinearImpl>(3, 3));
  Layer foreign = std::make_shared<torch::nn::LinearImpl>(3, 3);
  std::vector<Unit> listed;
};

std::shared_ptr<Task> task_of(const std::shared_ptr<FourLayers>& net) {
  return task(net, [](const Outputs& out, const Batch& /*batch*/) { return out.first().sum(); });
}

}  // namespace

TEST_CASE("a strategy that divides parameters runs the units of a network, as long as it lives") {
  const auto net = std::make_shared<FourLayers>();
  net->listed = {unit_of("first", net->first), unit_of("second", net->second)};
  const auto task = task_of(net);
  auto strategy = std::make_shared<Divided>();
  connect_units(*task, strategy);
  REQUIRE(strategy->given.size() == 2);
  CHECK(strategy->given[1].name == "second");
  CHECK(strategy->given[1].parameters == std::vector<std::string>{"second.weight", "second.bias"});
  const auto x = at::ones({1, 3});
  CHECK(net->forward(x).equal(net->second->forward(net->first->forward(x))));
  CHECK(strategy->ran == std::vector<size_t>{0, 1});

  const std::weak_ptr<Strategy> watched = strategy;
  strategy.reset();
  CHECK(watched.expired());
  const auto error = error_of([&] { net->forward(x); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(has(error.what(), "the Trainer is gone"));
  connect_units(*task, std::make_shared<SingleDeviceStrategy>());
  CHECK(net->forward(x).equal(net->second->forward(net->first->forward(x))));
}

TEST_CASE("parameters of several units, or with several names, belong to none; a unit without any runs itself") {
  const auto net = std::make_shared<FourLayers>();
  net->second->register_parameter("tied", net->first->weight);
  net->listed = {unit_of("first", net->first), unit_of("second", net->second), unit_of("again", net->second)};
  const auto task = task_of(net);
  const auto strategy = std::make_shared<Divided>();
  connect_units(*task, strategy);
  CHECK(strategy->given[0].parameters == std::vector<std::string>{"first.bias"});
  CHECK(strategy->given[1].parameters.empty());
  CHECK(strategy->given[2].parameters.empty());
  net->forward(at::ones({1, 3}));
  CHECK(strategy->ran == std::vector<size_t>{0});
}

TEST_CASE("a unit whose module is no part of the network is refused") {
  const auto net = std::make_shared<FourLayers>();
  net->listed = {unit_of("first", net->first), unit_of("foreign", net->foreign)};
  const auto task = task_of(net);
  const auto error = error_of([&] { connect_units(*task, std::make_shared<Divided>()); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(has(error.what(), "foreign has no parameter of the network"));
}
