// A custom loop on several ranks, which are threads, compared with a loop in one process that accumulates the micro-batches of all.
#include "npu_train/train/distributed_training.hpp"

#include "testing.hpp"

#include <limits>

#include <torch/nn.h>

#include "dist/in_process_group.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/optim/optimizers.hpp"
#include "npu_train/train/checkpoint.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Returns a network of two linear layers. `shift` is added to all weights.
torch::nn::Sequential own_net(double shift = 0) {
  torch::nn::Sequential net(torch::nn::Linear(6, 40), torch::nn::Tanh(), torch::nn::Linear(40, 3));
  const at::NoGradGuard no_grad;
  int64_t i = 0;
  for (const auto& p : net->parameters())
    p.copy_((torch::arange(p.numel()) * 0.37 + static_cast<double>(i++)).sin().view(p.sizes()) + shift);
  return net;
}

const std::vector<ParameterUnit> kOwnUnits{{"first", {"0.weight", "0.bias"}}, {"last", {"2.weight", "2.bias"}}};

DistributedTraining::MakeOptimizer adamw(double lr = 0.01) {
  return [lr](const ParameterSet& updated) { return std::make_unique<AdamW>(updated, AdamWOptions{.lr = lr}); };
}

struct OwnLoop {
  OwnLoop(torch::nn::Sequential model, std::shared_ptr<ProcessGroup> group, const std::string& strategy, bool scaled)
      : net(std::move(model)),
        zero3(strategy == "zero3"),
        training(*net, std::move(group), adamw(),
                 {.strategy = strategy,
                  .dist = {.reduce = "micro_batch", .bucket_mib = 0.001},
                  .clip_norm = 0.1,
                  .loss_scale = scaled ? std::make_optional(LossScaleOptions{.init_scale = 1024}) : std::nullopt,
                  .units = strategy == "zero3" ? kOwnUnits : std::vector<ParameterUnit>{}}) {}

  // Returns the loss of micro-batch `number` of a step. In the second step, one element of one parameter overflows.
  at::Tensor loss(int64_t step, int64_t number, int64_t all) {
    auto x = (torch::arange(24, at::kFloat) * 0.1 + static_cast<float>(7 * step + number)).cos().view({4, 6});
    const auto unit = [&](size_t index, size_t layer, const at::Tensor& in) {
      return training.run(
          index, [&, layer](const at::Tensor& y) { return net[layer]->as<torch::nn::Linear>()->forward(y); }, in);
    };
    if (zero3) training.begin_forward();
    const auto y = unit(1, 2, unit(0, 0, x).tanh());
    auto out = y.square().mean() / static_cast<double>(all);
    if (step == 1 && number == all - 1) out = out + y[0][0] * std::numeric_limits<float>::infinity();
    return out;
  }

  // Runs a step with the micro-batches `numbers` of `all`.
  bool step(int64_t step, const std::vector<int64_t>& numbers, int64_t all) {
    training.begin_window(static_cast<int64_t>(numbers.size()));
    for (const auto number : numbers) training.backward(loss(step, number, all));
    return training.step();
  }

  std::vector<at::Tensor> weights() {
    const auto& updated = training.optimizer().parameters();
    std::vector<at::Tensor> slices, out;
    for (const auto& p : updated) {
      slices.push_back(p.value.detach());
      out.push_back(at::empty(p.whole().sizes()));
    }
    training.strategy().gather_slices(slices, out);
    return out;
  }

  torch::nn::Sequential net;
  bool zero3;
  DistributedTraining training;
};

std::shared_ptr<ProcessGroup> alone() { return std::make_shared<InProcessGroup>(std::make_shared<Network>(1), 0); }

// Returns the numbers of the micro-batches of a rank.
std::vector<int64_t> numbers_of(int rank, int ranks, int64_t all) {
  std::vector<int64_t> out;
  for (int64_t k = rank; k < all; k += ranks) out.push_back(k);
  return out;
}

void check_equal_weights(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(at::equal(a[i], b[i]));
}

constexpr int64_t kOwnMicroBatches = 6, kOwnSteps = 4;

// Returns the weights after all steps in one process.
std::vector<at::Tensor> weights_of_one(bool scaled, std::vector<bool>& taken) {
  OwnLoop one(own_net(), alone(), "ddp", scaled);
  for (int64_t step = 0; step < kOwnSteps; ++step) taken.push_back(one.step(step, numbers_of(0, 1, kOwnMicroBatches), kOwnMicroBatches));
  return one.weights();
}

}  // namespace

TEST_CASE("an own loop: every strategy has the bits of one process, and an overflow on one rank skips the step on all") {
  at::set_num_threads(1);
  std::vector<bool> expected_taken;
  const auto expected = weights_of_one(/*scaled=*/true, expected_taken);
  CHECK(expected_taken == std::vector<bool>{true, false, true, true});
  for (const int ranks : {2, 4})  // 6 micro-batches on 4 ranks are 2, 2, 1, 1
    for (const std::string strategy : {"ddp", "zero1", "zero2", "zero3"}) {
      CAPTURE(ranks);
      CAPTURE(strategy);
      const auto network = std::make_shared<Network>(ranks);
      std::vector<torch::nn::Sequential> nets;
      for (int r = 0; r < ranks; ++r) nets.push_back(own_net(r));  // the weights differ, and those of rank 0 replace them
      on_ranks(network->agreements, [&](int rank) {
        OwnLoop loop(nets[static_cast<size_t>(rank)], std::make_shared<InProcessGroup>(network, rank), strategy, /*scaled=*/true);
        std::vector<bool> taken;
        for (int64_t step = 0; step < kOwnSteps; ++step)
          taken.push_back(loop.step(step, numbers_of(rank, ranks, kOwnMicroBatches), kOwnMicroBatches));
        CHECK(taken == expected_taken);
        CHECK(loop.training.loss_scale() == 512);
        CHECK(loop.training.global_step() == 3);
        CHECK(loop.training.sums({1.0, static_cast<double>(rank)}) ==
              std::vector<double>{static_cast<double>(ranks), ranks * (ranks - 1) / 2.0});
        check_equal_weights(loop.weights(), expected);
      });
    }
}

TEST_CASE("an own loop saves in one call, and another strategy and number of ranks continue with the bits of a run without a break") {
  at::set_num_threads(1);
  std::vector<bool> taken;
  const auto expected = weights_of_one(/*scaled=*/true, taken);
  TempDir dir;
  const auto path = (dir / "last").string();
  struct Team {
    int ranks;
    std::string strategy;
  };
  const std::vector<Team> teams{{2, "zero3"}, {1, "ddp"}, {4, "zero2"}, {2, "zero1"}};
  for (int64_t step = 0; step < kOwnSteps; ++step) {
    const auto& team = teams[static_cast<size_t>(step)];
    CAPTURE(team.strategy);
    const auto network = std::make_shared<Network>(team.ranks);
    std::vector<torch::nn::Sequential> nets;
    for (int r = 0; r < team.ranks; ++r) nets.push_back(own_net(step));
    on_ranks(network->agreements, [&](int rank) {
      OwnLoop loop(nets[static_cast<size_t>(rank)], std::make_shared<InProcessGroup>(network, rank), team.strategy, /*scaled=*/true);
      if (step > 0) loop.training.load(path);
      CHECK(loop.training.global_step() == (step < 2 ? step : step - 1));  // the second step is skipped
      loop.step(step, numbers_of(rank, team.ranks, kOwnMicroBatches), kOwnMicroBatches);
      loop.training.save(path);
      if (step + 1 == kOwnSteps) check_equal_weights(loop.weights(), expected);
    });
  }
  CHECK(load_checkpoint(path, {"scaler"}).at("scaler").number("scale", "scaler") == 512);
}

TEST_CASE("an own loop whose ranks have other options, or other models, is refused by name on each of them") {
  struct Case {
    DistributedTrainingOptions other;
    double lr;
    const char* said;
  };
  for (const auto& c : {Case{{.strategy = "zero1"}, 0.01, "rank 1 has sharding=zero1 where rank 0 has sharding=ddp"},
                        Case{{.dist = {.bucket_mib = 1}}, 0.01, "rank 1 has dist.bucket_mib=1 where rank 0 has dist.bucket_mib=25"},
                        Case{{.clip_norm = 2}, 0.01, "clip_norm=2"}, Case{{.loss_scale = LossScaleOptions{}}, 0.01, "loss_scale=65536"},
                        Case{{}, 0.02, "lr: 0.02"}}) {
    CAPTURE(c.said);
    const auto network = std::make_shared<Network>(2);
    std::vector<torch::nn::Sequential> nets{own_net(), own_net()};
    for (const auto& error : errors_of_ranks(network->agreements, [&](int rank) {
           DistributedTraining(*nets[static_cast<size_t>(rank)], std::make_shared<InProcessGroup>(network, rank),
                               adamw(rank == 1 ? c.lr : 0.01), rank == 1 ? c.other : DistributedTrainingOptions{});
         })) {
      REQUIRE(error.has_value());
      CHECK(error->kind() == ErrorKind::Usage);
      CHECK_MESSAGE(has(error->what(), c.said), error->what());
    }
  }
  const auto network = std::make_shared<Network>(2);
  std::vector<torch::nn::Sequential> nets{own_net(), torch::nn::Sequential(torch::nn::Linear(6, 41))};
  for (const auto& error : errors_of_ranks(network->agreements, [&](int rank) {
         DistributedTraining(*nets[static_cast<size_t>(rank)], std::make_shared<InProcessGroup>(network, rank), adamw());
       })) {
    REQUIRE(error.has_value());
    CHECK(has(error->what(), "rank 1 has a model with other parameters or buffers than rank 0"));
  }
}

TEST_CASE("an exception of a hook in the backward of an own loop is one of the program") {
  OwnLoop loop(own_net(), alone(), "ddp", /*scaled=*/false);
  loop.training.begin_window(1);
  const auto loss = loop.loss(/*step=*/0, /*number=*/0, /*all=*/1);
  loss.register_hook([](const at::Tensor&) { throw std::runtime_error("a hook went wrong"); });
  const auto e = error_of([&] { loop.training.backward(loss); });
  CHECK(std::string(e.what()) == "[backward] a hook went wrong");
  CHECK(e.kind() == ErrorKind::Usage);
}

TEST_CASE("an own loop in another order of calls, and what cannot be built, get an error that names the call before it") {
  OwnLoop loop(own_net(), alone(), "ddp", /*scaled=*/false);
  const auto said = [](const std::function<void()>& call) {
    const auto error = error_of(call);
    CHECK(error.kind() == ErrorKind::Usage);
    return std::string(error.what());
  };
  CHECK(has(said([&] { loop.training.step(); }), "step() without a window; hint: begin_window()"));
  CHECK(has(said([&] { loop.training.backward(loop.loss(0, 0, 1)); }), "backward() number 1 of a window of 0"));
  loop.training.begin_window(1);
  loop.training.backward(loop.loss(0, 0, 1));
  CHECK(has(said([&] { loop.training.backward(loop.loss(0, 0, 1)); }), "backward() number 2 of a window of 1; hint: begin_window(2)"));
  CHECK(loop.training.step());
  CHECK(loop.training.loss_scale() == 1);
  auto net = own_net();
  CHECK(has(said([&] { DistributedTraining(*net, alone(), adamw(), {.strategy = "fsdp"}); }), "'fsdp'; allowed: ddp, zero1, zero2, zero3"));
  CHECK(has(said([&] { DistributedTraining(*net, nullptr, adamw()); }), "no process group"));
  CHECK(has(said([&] { DistributedTraining(*net, alone(), [](const ParameterSet&) { return nullptr; }); }), "no optimizer"));
  const std::string name = parameters_of(*net)[0].name;
  const DistributedTrainingOptions twice{.units = {{"a", {name}}, {"b", {name}}}};
  CHECK(has(said([&] { DistributedTraining(*net, alone(), adamw(), twice); }), name + " is in two units, a and b"));
}

TEST_CASE("an own loop with a loss scale refuses what the scale cannot save") {
  const auto said = [](const std::function<void()>& call) {
    const auto error = error_of(call);
    CHECK(error.kind() == ErrorKind::Usage);
    return std::string(error.what());
  };
  OwnLoop loop(own_net(), alone(), "ddp", /*scaled=*/true);
  loop.training.begin_window(1);
  CHECK(has(said([&] { loop.training.backward({}); }), "backward() was given an undefined tensor"));
  CHECK(has(said([&] { loop.training.step(); }), "none of the optimizer's parameters has a gradient"));
  CHECK(loop.training.global_step() == 0);

  auto half = own_net();
  half->to(at::kHalf);
  DistributedTraining training(*half, alone(), adamw(), {.loss_scale = LossScaleOptions{.init_scale = 65536}});
  training.begin_window(1);
  training.begin_forward();
  training.backward(parameters_of(*half)[0].value.sum());
  CHECK(has(said([&] { training.step(); }), "a gradient is fp16"));
}
