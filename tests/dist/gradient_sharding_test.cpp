// Complete parameters, divided among ranks that are threads, compared with torch::optim in one process.
#include "npu_train/dist/gradient_sharding.hpp"

#include "testing.hpp"

#include <set>

#include <torch/nn.h>
#include <torch/optim.h>

#include "dist/in_process_group.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

struct ShardedNet : torch::nn::Module {
  torch::nn::Sequential body;
  torch::nn::Linear head{nullptr};
  ShardedNet() {
    torch::manual_seed(3);
    body = register_module("body", torch::nn::Sequential(torch::nn::Linear(5, 16), torch::nn::Tanh(), torch::nn::Linear(16, 12),
                                                         torch::nn::Tanh(), torch::nn::LayerNorm(torch::nn::LayerNormOptions({12}))));
    head = register_module("head", torch::nn::Linear(12, 2));
  }
  at::Tensor loss(int rank) {
    const auto x = (torch::arange(20, at::kFloat) * 0.3F + static_cast<float>(rank)).cos().reshape({4, 5});
    return head(body->forward(x)).square().mean() / 3;
  }
};

std::vector<std::string> names_of(const ShardedNet& net) {
  std::vector<std::string> out;
  for (const auto& p : net.named_parameters()) out.push_back(p.key());
  return out;
}

// Returns an optimizer with two groups that have options of their own.
std::unique_ptr<torch::optim::Adam> adam(const ShardedNet& net) {
  std::vector<at::Tensor> decayed, others;
  for (const auto& p : net.parameters()) (p.dim() > 1 ? decayed : others).push_back(p);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(decayed, std::make_unique<torch::optim::AdamOptions>(torch::optim::AdamOptions(0.02).weight_decay(0.1)));
  groups.emplace_back(others, std::make_unique<torch::optim::AdamOptions>(torch::optim::AdamOptions(0.005).betas({0.8, 0.9})));
  return std::make_unique<torch::optim::Adam>(groups, torch::optim::AdamOptions(0.5));
}

}  // namespace

TEST_CASE("layer: parameters of a layer are together and layers go around the shards; names of parameters are known, others are refused") {
  const ShardedNet net;
  const GradientSharding sharding(net, 3, "layer");
  const std::vector<std::pair<std::string, int>> expected{{"body.0", 0}, {"body.2", 1}, {"body.4", 2}, {"head", 0}};
  for (const auto& [layer, shard] : expected)
    for (const char* kind : {".weight", ".bias"}) CHECK(sharding.get_shard_for_param(layer + kind) == shard);
  CHECK(GradientSharding(net).num_shards() == 8);
  // With the names of children, every parameter would be unknown, and on shard 0.
  for (const char* unknown : {"body", "body.0", "head", ""}) {
    const auto e = error_of([&] { sharding.get_shard_for_param(unknown); });
    CHECK((e.kind() == ErrorKind::Usage));
    CHECK(has(e.what(), "body.0.weight"));
  }
}

TEST_CASE("parameter_size: from the largest, each to the smallest shard") {
  ParameterSet parameters;
  const std::vector<std::pair<const char*, int64_t>> sizes{{"a", 3}, {"b", 10}, {"c", 7}, {"d", 6}, {"e", 3}, {"f", 1}};
  for (const auto& [name, n] : sizes) parameters.add({.name = name, .value = torch::zeros({n})});
  parameters.add({.name = "tied", .value = parameters[1].value});
  // Expected shards, with the new sum of the shard: b to 0 (10), c to 1 (7), d to 2 (6), a to 2 (9), e to 1 (10), f to 2 (10).
  const GradientSharding sharding(parameters, 3, "parameter_size");
  const std::map<std::string, int> expected{{"b", 0}, {"c", 1}, {"d", 2}, {"a", 2}, {"e", 1}, {"f", 2}, {"tied", 0}};
  for (const auto& entry : expected) CHECK_MESSAGE(sharding.get_shard_for_param(entry.first) == entry.second, entry.first);
  CHECK((error_of([&] { GradientSharding(parameters, 0); }).kind() == ErrorKind::Usage));
  CHECK((error_of([&] { GradientSharding(parameters, 2, "size"); }).kind() == ErrorKind::Usage));
}

TEST_CASE("ranks that each update their shards have the bits of torch::optim in one process, with the options of its groups") {
  constexpr int kRanks = 3, kSteps = 4;
  at::set_num_threads(1);
  for (const auto& shard_by : {std::string("layer"), std::string("parameter_size")}) {
    CAPTURE(shard_by);
    ShardedNet one;
    const auto reference = adam(one);
    for (int step = 0; step < kSteps; ++step) {
      one.zero_grad();
      for (int r = 0; r < kRanks; ++r) one.loss(r + step).backward();
      reference->step();
    }
    const auto network = std::make_shared<Network>(kRanks);
    std::vector<std::shared_ptr<ShardedNet>> nets;
    for (int r = 0; r < kRanks; ++r) nets.push_back(std::make_shared<ShardedNet>());
    std::vector<std::set<std::string>> owned(kRanks);
    std::vector<size_t> states(kRanks);
    on_ranks(network->agreements, [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      auto& net = *nets[r];
      const GradientSharding sharding(net, 8, shard_by, std::make_shared<InProcessGroup>(network, rank));
      const auto optimizer = adam(net);
      sharding.apply_sharding(*optimizer);
      CHECK(optimizer->param_groups().size() == 2);
      CHECK(static_cast<torch::optim::AdamOptions&>(optimizer->param_groups()[0].options()).weight_decay() == 0.1);
      CHECK(optimizer->param_groups()[1].options().get_lr() == 0.005);
      for (int step = 0; step < kSteps; ++step) {
        net.zero_grad();
        net.loss(rank + step).backward();
        sharding.shard_gradients();
        for (const auto& p : net.named_parameters()) CHECK(p.value().grad().defined() == sharding.is_own(p.key()));
        optimizer->step();
        sharding.gather_parameters();
      }
      for (const auto& p : sharding.own()) owned[r].insert(p.name);
      states[r] = optimizer->state().size();
    });
    size_t all = 0;
    std::set<std::string> together;
    for (size_t r = 0; r < kRanks; ++r) {
      CHECK_FALSE(owned[r].empty());
      CHECK(states[r] == owned[r].size());
      all += owned[r].size();
      together.insert(owned[r].begin(), owned[r].end());
      for (const auto& p : one.named_parameters()) CHECK_MESSAGE(at::equal(p.value(), nets[r]->named_parameters()[p.key()]), p.key());
    }
    CHECK(all == names_of(one).size());
    CHECK(together.size() == all);
  }
}

TEST_CASE("state of an optimizer that has already stepped is released, and a foreign parameter is an error") {
  const auto network = std::make_shared<Network>(2);
  std::vector<std::shared_ptr<ShardedNet>> nets{std::make_shared<ShardedNet>(), std::make_shared<ShardedNet>()};
  on_ranks(network->agreements, [&](int rank) {
    auto& net = *nets[static_cast<size_t>(rank)];
    const auto optimizer = adam(net);
    net.loss(rank).backward();
    optimizer->step();
    const GradientSharding sharding(net, 8, "layer", std::make_shared<InProcessGroup>(network, rank));
    CHECK(optimizer->state().size() == 8);
    sharding.shard_optimizer_states(*optimizer);
    CHECK(optimizer->state().size() == sharding.own().size());
    CHECK(sharding.own().size() == 4);
    auto stranger = torch::optim::SGD({torch::zeros({2}).requires_grad_(true)}, torch::optim::SGDOptions(0.1));
    CHECK((error_of([&] { sharding.apply_sharding(stranger); }).kind() == ErrorKind::Usage));
  });
}

TEST_CASE("a parameter without a gradient on a rank gets the sum of the others, and one without any has none") {
  const auto network = std::make_shared<Network>(2);
  on_ranks(network->agreements, [&](int rank) {
    ParameterSet parameters;
    for (const char* name : {"some.weight", "none.weight"}) parameters.add({.name = name, .value = torch::zeros({3}).requires_grad_(true)});
    if (rank == 1) parameters[0].value.mutable_grad() = torch::ones({3});
    const GradientSharding sharding(parameters, 1, "layer", std::make_shared<InProcessGroup>(network, rank));
    sharding.shard_gradients();
    CHECK(parameters[0].value.grad().defined() == (rank == 0));
    if (rank == 0) CHECK(at::equal(parameters[0].value.grad(), torch::ones({3})));
    CHECK_FALSE(parameters[1].value.grad().defined());
  });
}
