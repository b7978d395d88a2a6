// Loops of several ranks, each with its loader, compared with the loop of one process that accumulates the micro-batches of all.
#include "testing.hpp"

#include <algorithm>

#include "dist/in_process.hpp"
#include "train/toy.hpp"
#include "wrapped_task.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// A network of two layers without buffers, which each rank would fill from its own batches.
struct TwoLayersImpl : torch::nn::Module {
  TwoLayersImpl() {
    first = register_module("first", torch::nn::Linear(6, 16));
    head = register_module("head", torch::nn::Linear(16, 4));
  }
  at::Tensor forward(const at::Tensor& x) { return head(torch::relu(first(x))); }
  torch::nn::Linear first{nullptr}, head{nullptr};
};
TORCH_MODULE(TwoLayers);

/// Records the samples of each micro-batch on which it is trained.
struct Recorded final : WrappedTask {
  using WrappedTask::WrappedTask;
  StepOutput training_step(const ForwardContext& context) override {
    const auto& batch = context.batch();
    seen.insert(seen.end(), batch.ids.begin(), batch.ids.end());
    return inner->training_step(context);
  }
  StepOutput validation_step(const ForwardContext& context) override {
    const auto& batch = context.batch();
    validated.insert(validated.end(), batch.ids.begin(), batch.ids.end());
    return inner->validation_step(context);
  }
  std::vector<int64_t> seen, validated;
};

struct Reports final : Callback {
  void on_step_end(TrainLoop&, const StepReport& report) override { steps.push_back(report); }
  std::vector<StepReport> steps;
};

struct Data {
  std::shared_ptr<Dataset> train, val;
  LoaderOptions loader{.batch_size = 8, .shuffle = true, .seed = 7};
};

/// A loop for each rank; a team of one rank is a single process.
struct Team {
  Team(int ranks, const Data& data, TrainerOptions options)
      : exchange(std::make_shared<Exchange>(ranks)), results(static_cast<size_t>(ranks)) {
    options.num_sanity_val_steps = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      auto& toy = *toys.emplace_back(std::make_unique<Toy>());
      torch::manual_seed(11);
      tasks.push_back(std::make_shared<Recorded>(classifier(TwoLayers())));
      toy.task = tasks.back();
      toy.task->to(device_under_test().c10());
      toy.precision = make_precision({"32-true", {}, {}}, device_under_test());
      toy.optimizer = std::make_unique<Sgd>(toy.precision->prepare(toy.task->parameters()), SgdOptions{.lr = 0.1, .momentum = 0.9});
      if (ranks > 1) toy.strategy = make_rank(exchange, rank, /*sharded=*/false);
      toy.optimizer->set_parameters(toy.strategy->setup(toy.optimizer->parameters()));
      toy.train = data.train;
      toy.val = data.val;
      toy.data = data.loader;
      toy.data.rank = rank;
      toy.data.world_size = ranks;
      toy.schedule = LrSchedule([](double t) { return 1.0 / (1 + t); }, false);
      loops.push_back(toy.loop(options));
      loops.back()->add_callback(reports.emplace_back(std::make_shared<Reports>()));
    }
  }
  Team& fit() {
    on_ranks(*exchange, [&](int rank) { results[static_cast<size_t>(rank)] = loops[static_cast<size_t>(rank)]->fit(); });
    return *this;
  }
  Team& load(const RunState& state) {
    for (const auto& loop : loops) loop->load_state(state);
    return *this;
  }
  std::vector<int64_t> seen() const {
    std::vector<int64_t> out;
    for (const auto& task : tasks) out.insert(out.end(), task->seen.begin(), task->seen.end());
    return out;
  }

  std::shared_ptr<Exchange> exchange;
  std::vector<std::unique_ptr<Toy>> toys;
  std::vector<std::shared_ptr<Recorded>> tasks;
  std::vector<std::unique_ptr<TrainLoop>> loops;
  std::vector<std::shared_ptr<Reports>> reports;
  std::vector<RunResult> results;
};

/// Compares everything that a step reports except its times.
void check_same_step(const StepReport& a, const StepReport& b) {
  CHECK(a.attempt == b.attempt);
  CHECK(a.global_step == b.global_step);
  CHECK(a.batches_seen == b.batches_seen);
  CHECK((a.metrics == b.metrics));
  CHECK(a.lr == b.lr);
  CHECK(a.samples == b.samples);
}

void check_same_run(const Team& ranks, const Team& one) {
  for (size_t rank = 0; rank < ranks.loops.size(); ++rank) {
    CAPTURE(rank);
    CHECK(weights(*ranks.toys[rank]) == weights(*one.toys[0]));
    const auto &got = ranks.results[rank], &expected = one.results[0];
    CHECK((got.reason == expected.reason));
    CHECK(got.attempts == expected.attempts);
    CHECK(got.global_step == expected.global_step);
    CHECK(got.batches_seen == expected.batches_seen);
    CHECK((got.final_val == expected.final_val));
    REQUIRE(got.history.size() == expected.history.size());
    for (size_t e = 0; e < expected.history.size(); ++e) {
      CHECK((got.history[e].train == expected.history[e].train));
      CHECK((got.history[e].val == expected.history[e].val));
    }
    REQUIRE(ranks.reports[rank]->steps.size() == one.reports[0]->steps.size());
    for (size_t i = 0; i < one.reports[0]->steps.size(); ++i) check_same_step(ranks.reports[rank]->steps[i], one.reports[0]->steps[i]);
    CHECK(ranks.loops[rank]->windows_per_epoch() == one.loops[0]->windows_per_epoch());
  }
}

std::vector<int64_t> sorted(std::vector<int64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

}  // namespace

TEST_CASE("rank data: uneven epochs of N ranks have the bits of one process that accumulates N micro-batches") {
  for (const int64_t samples : {75, 80, 66})  // 10 micro-batches with a short last one, 10 full ones, 9 with a last one of 2
    for (const auto last : {LastBatch::Keep, LastBatch::Drop, LastBatch::Pad})
      for (const int64_t workers : {0, 2})
        for (const int ranks : {2, 3, 4}) {
          CAPTURE(samples);
          CAPTURE(static_cast<int>(last));
          CAPTURE(workers);
          CAPTURE(ranks);
          Data data{toy_data(samples), toy_data(20, 4)};
          data.loader.last_batch = last;
          data.loader.num_workers = workers;
          Team one(1, data, {.max_epochs = 2, .accumulate_grad_batches = ranks});
          Team all(ranks, data, {.max_epochs = 2});
          check_same_run(all.fit(), one.fit());
          CHECK(sorted(all.seen()) == sorted(one.seen()));
        }
}

TEST_CASE("rank data: fewer micro-batches than ranks, in training and in validation") {
  const Data data{toy_data(20), toy_data(13, 4)};  // three batches for training, and two for validation
  Team one(1, data, {.max_epochs = 2, .accumulate_grad_batches = 4});
  Team all(4, data, {.max_epochs = 2});
  check_same_run(all.fit(), one.fit());
  CHECK(all.tasks[3]->seen.empty());
  CHECK(all.tasks[2]->validated.empty());
}

TEST_CASE("rank data: a validation has each sample once") {
  const Data data{toy_data(), toy_data(45, 4)};  // six batches
  Team all(4, data, {.max_epochs = 1});
  all.fit();
  std::vector<int64_t> validated;
  for (const auto& task : all.tasks) validated.insert(validated.end(), task->validated.begin(), task->validated.end());
  CHECK(sorted(validated) == sequence(45));
}

TEST_CASE("rank data: with accumulation, every rank takes the same steps on all samples") {
  const Data data{toy_data(75), toy_data(20, 4)};  // 10 micro-batches: over three ranks, windows of 6 and of 4
  Team one(1, data, {.max_epochs = 2, .accumulate_grad_batches = 6});
  Team all(3, data, {.max_epochs = 2, .accumulate_grad_batches = 2});
  one.fit();
  all.fit();
  CHECK(sorted(all.seen()) == sorted(one.seen()));
  for (size_t rank = 0; rank < 3; ++rank) {
    CHECK(all.results[rank].attempts == 4);
    CHECK(all.results[rank].batches_seen == 20);
    CHECK(weights(*all.toys[rank]) == weights(*all.toys[0]));
    // Here (a + d) + (b + e) is added instead of ((a + b) + d) + e, so that weights differ by rounding errors.
    for (const auto& p : one.toys[0]->task->parameters())
      CHECK(at::allclose(all.toys[rank]->task->parameters().find(p.name)->value, p.value, 1e-5, 1e-7));
  }
}

TEST_CASE("rank data: the end of an epoch is known without asking") {
  const Data data{toy_data(75), toy_data(20, 4)};
  Team all(4, data, {.max_epochs = 1, .check_val_every_n_epoch = 0});
  on_ranks(*all.exchange, [&](int rank) { CHECK(all.loops[static_cast<size_t>(rank)]->train_epoch().has_value()); });
  for (const auto& toy : all.toys) CHECK(dynamic_cast<ThreadRanks&>(toy->strategy->ranks()).asked == 0);
}

TEST_CASE("rank data: limits count the batches of a rank") {
  const Data data{toy_data(75), toy_data(45, 4)};
  for (const auto& limited : std::vector<TrainerOptions>{{.max_epochs = 2, .limit_train_batches = 2, .limit_val_batches = 1},
                                                         {.max_epochs = 2, .limit_train_batches = 4},
                                                         {.max_epochs = 2, .overfit_batches = 2},
                                                         {.fast_dev_run = true}}) {
    CAPTURE(limited.limit_train_batches);
    CAPTURE(limited.overfit_batches);
    auto alone = limited;
    alone.accumulate_grad_batches = 3;
    for (auto* limit : {&alone.limit_train_batches, &alone.limit_val_batches, &alone.overfit_batches}) *limit *= *limit > 0 ? 3 : 1;
    if (limited.fast_dev_run) {
      alone.fast_dev_run = false;
      alone.max_epochs = 1;
      alone.limit_train_batches = alone.limit_val_batches = 3;
    }
    Team one(1, data, alone), all(3, data, limited);
    one.fit();
    all.fit();
    for (size_t rank = 0; rank < 3; ++rank) {
      CHECK(weights(*all.toys[rank]) == weights(*one.toys[0]));
      CHECK(all.results[rank].attempts == one.results[0].attempts);
      CHECK((all.results[rank].final_val == one.results[0].final_val));
    }
  }
}

TEST_CASE("rank data: a run continues on other numbers of ranks with exactly the samples that remain") {
  const Data data{toy_data(75), toy_data(20, 4)};
  std::vector<int64_t> seen;
  RunState state;
  int64_t batches_seen = 0;
  for (const int ranks : {4, 2, 1, 3}) {
    CAPTURE(ranks);
    Team team(ranks, data, {.max_epochs = ranks == 3 ? 1 : 10});
    if (!state.empty()) team.load(state);
    for (const auto& loop : team.loops) loop->set_max_steps(ranks == 3 ? -1 : loop->global_step() + 1);
    team.fit();
    for (const auto id : team.seen()) seen.push_back(id);
    batches_seen += ranks == 3 ? 3 : ranks;  // three of the ten remain for the last window
    for (size_t rank = 0; rank < team.loops.size(); ++rank) {
      CHECK(team.results[rank].batches_seen == batches_seen);
      const auto of_rank = team.loops[rank]->state();
      for (const char* key : {"cursor", "batch_in_epoch"}) CHECK(of_rank.at("loader").integer(key, key) == (ranks == 3 ? 0 : batches_seen));
    }
    state = snapshot(*team.loops[0]);
  }
  CHECK(sorted(seen) == sequence(75));
}

TEST_CASE("rank data: four ranks and one process that accumulates four continue each other's runs, bit for bit") {
  const Data data{toy_data(75), toy_data(20, 4)};
  Team whole(1, data, {.max_epochs = 2, .accumulate_grad_batches = 4});
  whole.fit();
  for (const bool ranks_first : {false, true}) {
    CAPTURE(ranks_first);
    const auto team = [&](bool ranks) {
      return ranks ? std::make_unique<Team>(4, data, TrainerOptions{.max_epochs = 2})
                   : std::make_unique<Team>(1, data, TrainerOptions{.max_epochs = 2, .accumulate_grad_batches = 4});
    };
    const auto first = team(ranks_first), second = team(!ranks_first);
    for (const auto& loop : first->loops) loop->set_max_steps(2);
    first->fit();
    second->load(snapshot(*first->loops[0])).fit();
    for (size_t rank = 0; rank < second->loops.size(); ++rank) {
      CHECK(weights(*second->toys[rank]) == weights(*whole.toys[0]));
      CHECK((second->results[rank].history.back().train == whole.results[0].history.back().train));
      CHECK(second->results[rank].batches_seen == 20);
    }
  }
}

TEST_CASE("rank data: batches without a readable sample are missing in the same windows as in one process") {
  struct Damaged final : Dataset {
    explicit Damaged(std::shared_ptr<Dataset> all) : all_(std::move(all)) {}
    int64_t size() const override { return all_->size(); }
    Sample get(int64_t i) const override {
      const auto batch = i / 8;
      check(batch != 3 && batch != 6 && batch != 7 && i != 1, ErrorKind::Data, "test", "sample ", i, " is damaged");
      return all_->get(i);
    }
    std::shared_ptr<Dataset> all_;
  };
  Data data{std::make_shared<Damaged>(toy_data(75)), toy_data(20, 4)};
  data.loader.shuffle = false;
  data.loader.skip_bad_samples = true;
  Team one(1, data, {.max_epochs = 2, .accumulate_grad_batches = 2}), all(2, data, {.max_epochs = 2});
  check_same_run(all.fit(), one.fit());
  CHECK(one.results[0].attempts == 8);  // the window of batches 6 and 7 is omitted
  CHECK(one.results[0].batches_seen == 14);
  for (const int ranks : {1, 2}) {  // ranks agree from the window after an omitted batch on
    const TrainerOptions options{.max_epochs = 2, .accumulate_grad_batches = 2 / ranks};
    Team first(ranks, data, options), rest(ranks, data, options);
    for (const auto& loop : first.loops) loop->set_max_steps(2);
    rest.load(snapshot(*first.fit().loops[0])).fit();
    CHECK(weights(*rest.toys[0]) == weights(*one.toys[0]));
    CHECK(rest.results[0].batches_seen == 14);
  }
}
