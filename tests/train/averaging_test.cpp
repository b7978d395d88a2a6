// Equal averages of weights (average.kind: swa, checkpoints) in a loop: when they are updated, their running statistics, and their place in
// validations, checkpoints and resumes.
#include "testing.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>

#include <fstream>
#include <functional>

#include "dist/in_process.hpp"
#include "train/toy.hpp"
#include "wrapped_task.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

using Weights = std::map<std::string, at::Tensor>;

/// Copies the weights at the end of each epoch.
struct Copies final : Callback {
  explicit Copies(const Toy& of) : toy(of) {}
  void on_epoch_end(TrainLoop&, const EpochReport&) override { epochs.push_back(copy_of(toy.optimizer->parameters())); }
  const Toy& toy;
  std::vector<Weights> epochs;
};

/// Calls a function in each pass over training data that computes no gradients.
struct Watched final : WrappedTask {
  using WrappedTask::WrappedTask;
  StepOutput training_step(const ForwardContext& context) override {
    if (!at::GradMode::is_enabled() && on_pass) on_pass();
    return inner->training_step(context);
  }
  StepOutput validation_step(const ForwardContext& context) override { return inner->validation_step(context); }
  std::function<void()> on_pass;
};

/// Returns the mean of the weights of the copies [first, last), computed in fp64 on the host.
at::Tensor mean_of(const std::vector<Weights>& copies, size_t first, size_t last, const std::string& name) {
  std::vector<at::Tensor> all;
  for (size_t i = first; i < last; ++i) all.push_back(copies[i].at(name).to(at::kCPU, at::kDouble));
  return at::stack(all).mean(0);
}

void check_means(const WeightAverage& average, const std::vector<Weights>& copies, size_t first, size_t last) {
  for (const auto& p : average.averages()) {
    CAPTURE(p.name);
    CHECK(at::allclose(p.value.to(at::kCPU, at::kDouble), mean_of(copies, first, last, p.name), 1e-5, 1e-6));
  }
}

}  // namespace

TEST_CASE("swa averages the weights at the ends of the last epochs") {
  struct Row {
    double start;
    size_t first;  // index of the first averaged epoch
  };
  for (const auto& row : {Row{0.75, 3}, Row{0.5, 2}, Row{0.6, 3}, Row{1, 1}, Row{0, 0}}) {
    CAPTURE(row.start);
    Toy toy;
    toy.with_average({.enabled = true, .kind = "swa", .start = row.start});
    auto loop = toy.loop({.max_epochs = 4});
    const auto copies = std::make_shared<Copies>(toy);
    loop->add_callback(copies);
    loop->fit();
    REQUIRE(copies->epochs.size() == 4);
    CHECK(toy.average->updates() == static_cast<int64_t>(4 - row.first));
    check_means(*toy.average, copies->epochs, row.first, 4);
  }
}

TEST_CASE("with average.every, swa averages the weights after every n-th step from the start on") {
  Toy toy;
  toy.with_average({.enabled = true, .kind = "swa", .start = 0, .every = 2});
  auto loop = toy.loop({.max_epochs = 4});
  std::vector<Weights> copies;
  for (int step = 1; step <= 5; ++step) {
    loop->train_step({toy_batch(8, static_cast<uint64_t>(step))});
    if (step % 2 == 0) copies.push_back(copy_of(toy.optimizer->parameters()));
  }
  CHECK(toy.average->updates() == 2);
  check_means(*toy.average, copies, 0, 2);

  Toy late;
  late.with_average({.enabled = true, .kind = "swa", .start = 2, .every = 3});
  late.loop({.max_epochs = 4})->fit();
  CHECK(late.average->updates() == 3);  // after steps 12, 15 and 18 of 20
}

TEST_CASE("before its start, swa validates the weights, and checkpoints have no averages") {
  Toy toy;
  toy.with_average({.enabled = true, .kind = "swa", .start = 2});
  auto loop = toy.loop({.max_epochs = 1});
  loop->fit();
  CHECK(toy.average->updates() == 0);
  const auto state = snapshot(*loop);
  CHECK(state.count("ema") == 0);
  const auto metrics = loop->validate();
  Toy plain;
  auto without = plain.loop({.max_epochs = 1});
  without->fit();
  CHECK(scalar_or(metrics, "loss", -1) == doctest::Approx(scalar_or(without->validate(), "loss", -2)));

  Toy later;
  later.with_average({.enabled = true, .kind = "swa", .start = 2});
  auto rest = later.loop({.max_epochs = 3});
  rest->load_state(state);
  rest->fit();
  CHECK(later.average->updates() == 1);
  CHECK(snapshot(*rest).count("ema") == 1);
}

TEST_CASE("a longer run begins the averages of kind swa again at its own start") {
  Toy toy;
  toy.with_average({.enabled = true, .kind = "swa", .start = 0.5});
  auto loop = toy.loop({.max_epochs = 2});
  loop->fit();
  CHECK(toy.average->updates() == 1);
  const auto state = snapshot(*loop);

  Toy longer;
  longer.with_average({.enabled = true, .kind = "swa", .start = 0.5});
  auto rest = longer.loop({.max_epochs = 6});
  const auto copies = std::make_shared<Copies>(longer);
  rest->add_callback(copies);
  rest->load_state(state);
  rest->fit();
  REQUIRE(copies->epochs.size() == 4);
  CHECK(longer.average->updates() == 3);
  check_means(*longer.average, copies->epochs, 1, 4);
}

TEST_CASE("the running statistics of the averages are those of libtorch's BatchNorm without momentum over the training data") {
  Toy toy;
  toy.with_average({.enabled = true, .kind = "swa", .start = 1});
  auto loop = toy.loop({.max_epochs = 3});
  loop->fit();
  const auto state = toy.average->state();

  auto net = ToyNet();  // as torch.optim.swa_utils.update_bn: resets the statistics, then averages all batches equally
  net->norm->options.momentum(std::nullopt);
  net->norm->reset_running_stats();
  net->to(device_under_test().c10());
  net->train();
  {
    const torch::NoGradGuard no_grad;
    for (auto& item : net->named_parameters()) item.value().copy_(state.tensors.at("average/" + item.key()));
    Loader loader(toy.train, Pipeline(), toy.data);
    loader.begin_epoch(2);
    while (auto batch = loader.next()) net->forward(to_device(*batch, device_under_test()).input());
  }
  for (const char* name : {"running_mean", "running_var"}) {
    CAPTURE(name);
    const auto expected = net->norm->named_buffers()[name];
    CHECK(at::allclose(state.tensors.at(std::string("buffer/norm.") + name), expected, 1e-4, 1e-5));
  }
  CHECK_FALSE(at::allclose(state.tensors.at("buffer/norm.running_mean"), toy.net->norm->running_mean, 1e-4, 1e-5));
}

TEST_CASE("a run with averages has the bits of one without, apart from the averages: the data and the draws go on") {
  const auto end = [](bool averages, int64_t every) {
    Toy toy("32-true", "sgd", 0.3);
    if (averages) toy.with_average({.enabled = true, .kind = "swa", .start = 1, .every = every});
    auto loop = toy.loop({.max_epochs = 4, .check_val_every_n_epoch = 0});
    loop->fit();
    auto state = snapshot(*loop);
    state.erase("ema");
    return std::pair(weights(toy), digest(state.at("rng")));
  };
  const auto without = end(false, 0);
  CHECK(end(true, 0) == without);
  CHECK(end(true, 2) == without);
}

TEST_CASE("a run with averages that is stopped and resumed has their bits") {
  struct Stop {
    int64_t at, last;
  };
  for (const int64_t every : {0, 2})
    // The run stops before the start, at the end of an epoch, inside one, and after the last update before the end.
    for (const auto& stop : {Stop{4, 20}, Stop{10, 20}, Stop{13, 20}, Stop{14, 15}}) {
      CAPTURE(every);
      CAPTURE(stop.at);
      const auto options = [](int64_t steps) { return TrainerOptions{.max_epochs = -1, .max_steps = steps, .check_val_every_n_epoch = 0}; };
      const AverageOptions average{.enabled = true, .kind = "swa", .start = 1, .every = every};
      Toy whole("32-true", "sgd", 0.5);
      whole.with_average(average);
      auto whole_loop = whole.loop(options(stop.last));
      whole_loop->fit();

      Toy half("32-true", "sgd", 0.5);
      half.with_average(average);
      auto half_loop = half.loop(options(stop.at));
      half_loop->fit();
      const auto state = snapshot(*half_loop);

      seed_everything(999);
      Toy rest("32-true", "sgd", 0.5);
      rest.with_average(average);
      auto rest_loop = rest.loop(options(stop.last));
      rest_loop->load_state(state);
      rest_loop->fit();
      CHECK(weights(rest) == weights(whole));
      CHECK(digest(rest.average->state()) == digest(whole.average->state()));
    }
}

TEST_CASE("a run without averages goes on from a checkpoint with averages whose statistics were not measured") {
  Toy toy;
  toy.with_average({.enabled = true, .kind = "swa", .start = 0, .every = 2});
  auto loop = toy.loop({.max_epochs = 1});
  for (uint64_t step = 1; step <= 2; ++step) loop->train_step({toy_batch(8, step)});
  const auto state = snapshot(*loop);

  Toy plain, without;
  auto state_without = state;
  for (const char* key : {"averaged_step", "statistics_step", "averages_judged"}) CHECK(state_without.at("loop").values.erase(key) == 1);
  for (auto* one : {&plain, &without}) {
    auto rest = one->loop({.max_epochs = 1});
    rest->load_state(one == &plain ? state : state_without);
    rest->fit();
  }
  CHECK(weights(plain) == weights(without));
  CHECK(torch::equal(plain.net->norm->running_mean, without.net->norm->running_mean));
}

TEST_CASE("a request ends the measurement of statistics, and a run that goes on repeats it") {
  const AverageOptions average{.enabled = true, .kind = "swa", .start = 0};
  Toy whole("32-true", "sgd", 0.3);
  whole.with_average(average);
  whole.loop({.max_epochs = 2})->fit();

  Toy toy("32-true", "sgd", 0.3);
  const auto watched = std::make_shared<Watched>(toy.task);
  toy.task = watched;
  toy.with_average(average);
  auto loop = toy.loop({.max_epochs = 2});
  int passes = 0;
  watched->on_pass = [&] {
    if (++passes == 3) loop->request_stop();
  };
  CHECK(loop->fit().reason == StopReason::Requested);
  CHECK(loop->epoch() == 0);
  CHECK(toy.average->updates() == 1);
  watched->on_pass = {};
  CHECK(loop->fit().reason == StopReason::MaxEpochs);
  CHECK(weights(toy) == weights(whole));
  CHECK(digest(toy.average->state()) == digest(whole.average->state()));
}

TEST_CASE("the averages of several ranks and their statistics are those of one process") {
  const auto end = [](int ranks) {
    const auto exchange = std::make_shared<Exchange>(ranks);
    std::vector<std::unique_ptr<Toy>> toys;
    std::vector<std::unique_ptr<TrainLoop>> loops;
    for (int rank = 0; rank < ranks; ++rank) {
      auto& toy = *toys.emplace_back(std::make_unique<Toy>());
      if (ranks > 1) toy.strategy = make_rank(exchange, rank, /*sharded=*/false);
      toy.optimizer->set_parameters(toy.strategy->setup(toy.optimizer->parameters()));
      toy.with_average({.enabled = true, .kind = "swa", .start = 1});
      toy.data.rank = rank;
      toy.data.world_size = ranks;
      loops.push_back(toy.loop({.max_epochs = 3, .accumulate_grad_batches = 2 / ranks, .num_sanity_val_steps = 0}));
    }
    on_ranks(*exchange, [&](int rank) { loops[static_cast<size_t>(rank)]->fit(); });
    std::vector<State> out;
    for (const auto& toy : toys) out.push_back(toy->average->state());
    return out;
  };
  const auto one = end(1).front();
  const auto two = end(2);
  for (const auto& state : two)
    for (const auto& [name, tensor] : one.tensors) {
      CAPTURE(name);
      if (name.find("num_batches") != std::string::npos) continue;
      CHECK(at::allclose(state.tensors.at(name), tensor, 1e-5, 1e-6));
    }
  for (const auto& [name, tensor] : two[0].tensors) CHECK(at::equal(tensor, two[1].tensors.at(name)));
}

TEST_CASE("the mean of the last checkpoints is made at the end of a run, validated, and dropped when the run continues") {
  TempDir dir;
  const CheckpointOptions kept{.save_top_k = 1};
  CheckpointStore store((dir / "checkpoints").string(), kept);
  store.keep_newest(3);
  Toy toy;
  toy.with_average({.enabled = true, .kind = "checkpoints", .last = 3});
  auto loop = toy.loop({.max_epochs = 5}, kept, &store);
  const auto copies = std::make_shared<Copies>(toy);
  loop->add_callback(copies);
  const auto result = loop->fit();
  CHECK(toy.average->updates() == 3);
  check_means(*toy.average, copies->epochs, 2, 5);
  CHECK(store.newest(10).size() >= 3);
  CHECK(store.newest(1).front() == result.last_checkpoint);

  const auto saved = load_checkpoint(result.last_checkpoint);
  CHECK(digest(saved.at("ema")) == digest(toy.average->state()));
  // Both losses are those of the averages.
  CHECK(scalar_or(result.final_val, "loss", -1) == doctest::Approx(scalar_or(loop->validate(), "loss", -2)));
  CHECK(read_checkpoint_meta(result.last_checkpoint).score == scalar_or(result.final_val, "acc1", -1));
  const auto serial = read_checkpoint_meta(result.last_checkpoint).serial;
  loop->fit();  // nothing is left to do
  CHECK(read_checkpoint_meta(result.last_checkpoint).serial == serial);

  Toy longer;
  longer.with_average({.enabled = true, .kind = "checkpoints", .last = 3});
  auto rest = longer.loop({.max_epochs = 6}, kept, &store);
  const auto later = std::make_shared<Copies>(longer);
  rest->add_callback(later);
  rest->load_state(saved);
  rest->fit();
  check_means(*longer.average, {copies->epochs[3], copies->epochs[4], later->epochs[0]}, 0, 3);
}

TEST_CASE("the mean of the last checkpoints passes over a damaged one") {
  struct Damages final : Callback {
    void on_checkpoint(TrainLoop&, const std::string& path) override {
      if (read_checkpoint_meta(path).global_step == 20) std::ofstream(path + "/model.safetensors", std::ios::app) << "more";
    }
  };
  TempDir dir;
  const CheckpointOptions kept{.save_top_k = 1};
  CheckpointStore store((dir / "checkpoints").string(), kept);
  store.keep_newest(3);
  Toy toy;
  toy.with_average({.enabled = true, .kind = "checkpoints", .last = 3});
  auto loop = toy.loop({.max_epochs = 5}, kept, &store);
  const auto copies = std::make_shared<Copies>(toy);
  loop->add_callback(copies);
  loop->add_callback(std::make_shared<Damages>());
  loop->fit();
  CHECK(toy.average->updates() == 2);
  check_means(*toy.average, {copies->epochs[2], copies->epochs[4]}, 0, 2);
}

TEST_CASE("for early stopping, validations of averages that have not changed are one") {
  Toy toy;
  toy.with_average({.enabled = true, .kind = "swa", .start = 0});
  auto loop = toy.loop({.max_epochs = 2, .check_val_every_n_epoch = 2, .val_check_interval = "1"}, {}, nullptr,
                       {.enabled = true, .monitor = "val/loss", .patience = 3});
  // In the second epoch, four validations are of the averages of the first epoch, and the last one is of its own.
  CHECK(loop->fit().reason == StopReason::MaxEpochs);
  CHECK(toy.average->updates() == 2);
}

TEST_CASE("a share of a run without an end is refused") {
  Toy toy;
  toy.with_average({.enabled = true, .kind = "swa", .start = 0.5});
  const auto error = error_of([&] { toy.loop({.max_epochs = -1, .max_time = 60}); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(has(error.what(), "average.start"));
}
