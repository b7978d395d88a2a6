// trainer.strategy=auto: sizes of the state, and the least sharding that fits.
#include "testing.hpp"

#include "engine/strategy_choice.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

ParameterSet layers() {
  ParameterSet out;
  out.add({.name = "fc.weight", .value = at::zeros({100, 30}).set_requires_grad(true)});
  out.add({.name = "fc.bias", .value = at::zeros({100}).set_requires_grad(true)});
  return out;
}
constexpr double kElements = 3100;

RunConfig config_with(const std::string& optimizer, const std::string& precision = "32-true") {
  RunConfig config;
  config.optimizer.name = optimizer;
  config.precision = precision;
  return config;
}

}  // namespace

TEST_CASE("the state of a training: what each optimizer, precision and average adds") {
  const auto state = [](const RunConfig& config) { return state_of(layers(), config, builtin_parts()); };
  const auto adamw = state(config_with("adamw"));
  CHECK(adamw.parameters == 4 * kElements);
  CHECK(adamw.gradients == 4 * kElements);
  CHECK(adamw.optimizer == doctest::Approx(8 * kElements).epsilon(0.05));  // with counters of steps in addition
  auto sgd = config_with("sgd");
  sgd.optimizer.options.set("momentum", ConfigNode(0.9));
  CHECK(state(sgd).optimizer == doctest::Approx(4 * kElements).epsilon(0.05));
  sgd.average.enabled = true;
  CHECK(state(sgd).optimizer == doctest::Approx(8 * kElements).epsilon(0.05));
  CHECK(state(config_with("sgd", "bf16-mixed")).parameters == 4 * kElements);
  CHECK(state_of({}, config_with("adamw"), builtin_parts()).all() == 0);
  CHECK(most_state_of(layers(), config_with("adamw")).all() > adamw.all());
  const auto low = state(config_with("sgd", "bf16-true"));  // has fp32 masters, which zero1 divides
  CHECK(low.parameters == 2 * kElements);
  CHECK(low.optimizer == state(config_with("sgd")).optimizer + 4 * kElements);
  CHECK(low.divided(Sharding::Optimizer, 4) == 6 * kElements + low.optimizer / 4);
  const auto offloaded = state_of(layers(), sgd, builtin_parts(), /*offloads=*/true);
  CHECK((offloaded.optimizer == 0 && offloaded.parameters == 4 * kElements && offloaded.gradients == 4 * kElements));
  CHECK(most_state_of(layers(), sgd, /*offloads=*/true).all() == offloaded.all());
  // These are the fp32 masters.
  CHECK(state_of(layers(), config_with("adamw", "bf16-true"), builtin_parts(), /*offloads=*/true).optimizer == 4 * kElements);
}

TEST_CASE("the first division that leaves half of the memory, and not more than is allowed") {
  const TrainingState state{.parameters = 40, .gradients = 40, .optimizer = 80};
  CHECK(state.all() == 160);
  CHECK(state.divided(Sharding::None, 4) == 160);
  CHECK(state.divided(Sharding::Optimizer, 4) == 100);
  CHECK(state.divided(Sharding::Gradients, 4) == 70);
  CHECK(state.divided(Sharding::Parameters, 4) == 40);
  const auto of = [&](double bytes, Sharding most = Sharding::Parameters) { return least_sharding(state, bytes, 0, 4, most); };
  CHECK((of(320) == Sharding::None));
  CHECK((of(319) == Sharding::Optimizer));
  CHECK((of(200) == Sharding::Optimizer));
  CHECK((of(199) == Sharding::Gradients));
  CHECK((of(139) == Sharding::Parameters));
  CHECK((of(1) == Sharding::Parameters));
  CHECK((of(1, Sharding::Gradients) == Sharding::Gradients));
  CHECK((of(1, Sharding::None) == Sharding::None));
  CHECK((least_sharding(state, 420, 50, 4, Sharding::Parameters) == Sharding::None));
  CHECK((least_sharding(state, 419, 50, 4, Sharding::Parameters) == Sharding::Optimizer));
}

TEST_CASE("what a configuration excludes is not chosen") {
  const auto most = [](const RunConfig& config, Sharding of_model = Sharding::Parameters) {
    return most_sharding(config, layers(), of_model, builtin_parts());
  };
  CHECK((most(config_with("adamw", "16-mixed")) == Sharding::Parameters));
  CHECK((most(config_with("adamw"), Sharding::Gradients) == Sharding::Gradients));
  CHECK((most(config_with("adamw"), Sharding::None) == Sharding::None));
  CHECK((most(config_with("adamw", "bf16-true")) == Sharding::Parameters));
  auto config = config_with("adamw");
  config.task.name = "contrastive";
  CHECK((most(config) == Sharding::Gradients));
  config = config_with("adamw");
  config.trainer.sync_batchnorm = true;
  CHECK((most(config) == Sharding::Gradients));
  config = config_with("adamw");
  config.dist.shard_by = "layer";
  CHECK((most(config) == Sharding::Gradients));
  config = config_with("adamw");
  config.dist.group_size = "2";
  CHECK((most(config) == Sharding::Gradients));
  config = config_with("adamw");
  config.dist.in_flight = 2;
  CHECK((most(config) == Sharding::Gradients));
  config = config_with("adamw");
  config.dist.compression = "int8";
  CHECK((most(config) == Sharding::None));
  config = config_with("adamw");
  config.optimizers = {{"generator", part("sgd")}};
  CHECK((most(config) == Sharding::None));
}
