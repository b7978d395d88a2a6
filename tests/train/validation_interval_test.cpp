// trainer.val_check_interval: validations inside an epoch, and their consequences.
#include "testing.hpp"

#include "dist/in_process.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Records the windows of the epoch after which the run has validated.
struct ValidatedAt final : Callback {
  std::vector<int64_t> windows;
  void on_validation_end(TrainLoop& loop, const Scalars&) override { windows.push_back(loop.windows_done()); }
};

std::vector<int64_t> validated(TrainerOptions options, int64_t samples = 80) {
  Toy toy;
  toy.train = toy_data(samples);
  options.num_sanity_val_steps = 0;
  auto loop = toy.loop(options);
  const auto at = std::make_shared<ValidatedAt>();
  loop->add_callback(at);
  loop->fit();
  return at->windows;
}

using Windows10 = std::vector<int64_t>;

}  // namespace

TEST_CASE("validations after so many steps, or such a share of an epoch, and once at its end") {
  CHECK(validated({.max_epochs = 1}) == Windows10{10});
  CHECK(validated({.max_epochs = 2, .val_check_interval = "4"}) == Windows10{4, 8, 10, 4, 8, 10});
  CHECK(validated({.max_epochs = 1, .val_check_interval = "0.5"}) == Windows10{5, 10});
  CHECK(validated({.max_epochs = 1, .val_check_interval = "0.25"}) == Windows10{2, 4, 6, 8, 10});  // 2.5 steps, rounded down
  CHECK(validated({.max_epochs = 1, .val_check_interval = "0.01"}) == Windows10{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  CHECK(validated({.max_epochs = 1, .val_check_interval = "10"}) == Windows10{10});
  CHECK(validated({.max_epochs = 1, .accumulate_grad_batches = 4, .val_check_interval = "1"}) == Windows10{1, 2, 3});
  CHECK(validated({.max_epochs = 4, .check_val_every_n_epoch = 2, .val_check_interval = "0.5"}) == Windows10{5, 10, 5, 10});
  CHECK(validated({.max_epochs = 1, .val_check_interval = "0.5", .limit_train_batches = 4}) == Windows10{2, 4});
  CHECK(validated({.max_epochs = -1, .max_steps = 6, .val_check_interval = "3"}) == Windows10{3, 6});
  CHECK(validated({.val_check_interval = "500", .fast_dev_run = true}) == Windows10{1});
}

TEST_CASE("an interval that cannot be is one error each") {
  for (const char* bad : {"0", "-1", "1.5", "0.0", "half", "", "0.5x", "nan", "inf"}) {
    CAPTURE(bad);
    const auto e = error_of([&] { parse_val_check_interval(bad); });
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK(has(e.what(), "number of steps of at least 1"));
  }
  CHECK(parse_val_check_interval("1").steps == 1);
  CHECK(parse_val_check_interval("1.0").fraction == 1);
  const auto e = error_of([] { validated({.max_epochs = 1, .val_check_interval = "11"}); });
  CHECK(e.kind() == ErrorKind::Usage);
  CHECK(has(e.what(), "an epoch has 10"));
}

TEST_CASE("the best checkpoint of one epoch is that of its best validation, and early stopping acts inside an epoch") {
  struct Spoils final : Callback {
    explicit Spoils(Toy& t) : toy(t) {}
    void on_step_end(TrainLoop&, const StepReport& report) override {
      if (report.attempt != 5) return;  // after the validation at step 4
      const torch::NoGradGuard no_grad;
      toy.net->head->weight.zero_();
      toy.net->head->bias.fill_(0).narrow(0, 0, 1).fill_(30);
    }
    Toy& toy;
  };
  TempDir dir;
  CheckpointStore store((dir / "run/checkpoints").string(), {});
  Toy toy;
  toy.train = toy_data(80);
  auto loop = toy.loop({.max_epochs = 3, .val_check_interval = "2", .num_sanity_val_steps = 0}, {.monitor = "val/loss"}, &store,
                       {.enabled = true, .monitor = "val/loss", .patience = 2});
  loop->add_callback(std::make_shared<Spoils>(toy));
  const auto at = std::make_shared<ValidatedAt>();
  loop->add_callback(at);
  const auto result = loop->fit();
  CHECK(result.reason == StopReason::EarlyStopping);
  CHECK(at->windows == Windows10{2, 4, 6, 8});
  CHECK(result.global_step == 8);
  CHECK(result.best_checkpoint.ends_with("step=4"));
  CHECK(read_checkpoint_meta(result.best_checkpoint).score == result.best_score);
  // A resumed run has stopped already.
  Toy again;
  again.train = toy.train;
  auto resumed = again.loop({.max_epochs = 3, .val_check_interval = "2", .num_sanity_val_steps = 0}, {.monitor = "val/loss"}, &store,
                            {.enabled = true, .monitor = "val/loss", .patience = 2});
  resumed->load_state(load_checkpoint(result.last_checkpoint));
  CHECK(resumed->fit().global_step == 8);
}

TEST_CASE("ranks validate inside an epoch at the same windows as one process") {
  const auto windows_of_ranks = [](int ranks) {
    const auto exchange = std::make_shared<Exchange>(ranks);
    std::vector<std::unique_ptr<Toy>> toys;
    std::vector<std::unique_ptr<TrainLoop>> loops;
    const auto at = std::make_shared<ValidatedAt>();
    std::vector<Scalars> last(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      auto& toy = *toys.emplace_back(std::make_unique<Toy>());
      toy.train = toy_data(80);
      if (ranks > 1) toy.strategy = make_rank(exchange, rank, /*sharded=*/false);
      toy.optimizer->set_parameters(toy.strategy->setup(toy.optimizer->parameters()));
      toy.data.rank = rank;
      toy.data.world_size = ranks;
      loops.push_back(
          toy.loop({.max_epochs = 1, .accumulate_grad_batches = 2 / ranks, .val_check_interval = "2", .num_sanity_val_steps = 0}));
    }
    loops[0]->add_callback(at);
    on_ranks(*exchange, [&](int rank) { last[static_cast<size_t>(rank)] = loops[static_cast<size_t>(rank)]->fit().final_val; });
    return at->windows;
  };
  CHECK(windows_of_ranks(1) == Windows10{2, 4, 5});
  CHECK(windows_of_ranks(2) == Windows10{2, 4, 5});
}
