// The state that a loop saves and from which it resumes: checkpoints, divergence, rollback.
#include "testing.hpp"

#include "npu_train/train/loop.hpp"

#include <cmath>

#include "npu_train/base/state.hpp"
#include "toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Spoils the weights when epoch `at` begins, at most `times` times.
struct Poison final : Callback {
  Toy* toy = nullptr;
  int64_t at = 0;
  int times = 1 << 30;
  std::filesystem::path broken;
  int given = 0;
  bool kept_early = false;
  void on_epoch_start(TrainLoop&, int64_t epoch) override {
    if (epoch != at || given == times) return;
    ++given;
    kept_early |= std::filesystem::exists(broken);
    const torch::NoGradGuard no_grad;
    toy->net->head->weight.fill_(std::nanf(""));
  }
};

}  // namespace

TEST_CASE("N steps, state, N steps equal 2N steps, bit for bit") {
  for (const char* mode : {"32-true", "16-mixed"}) {
    for (const int64_t at : {3, 5, 7}) {  // inside an epoch, at its end, inside the next one
      CAPTURE(mode);
      CAPTURE(at);
      const auto options = [](int64_t steps) { return TrainerOptions{.max_epochs = -1, .max_steps = steps, .check_val_every_n_epoch = 0}; };
      Toy whole(mode, "sgd", 0.5);
      whole.with_ema();
      auto whole_loop = whole.loop(options(12));
      whole_loop->fit();

      Toy half(mode, "sgd", 0.5);
      half.with_ema();
      auto half_loop = half.loop(options(at));
      half_loop->fit();
      const auto state = snapshot(*half_loop);

      seed_everything(999);
      Toy rest(mode, "sgd", 0.5);
      rest.with_ema();
      auto rest_loop = rest.loop(options(12));
      rest_loop->load_state(state);
      rest_loop->fit();
      CHECK(weights(rest) == weights(whole));
      CHECK(digest(rest.average->state()) == digest(whole.average->state()));
      CHECK(digest(rest.optimizer->state()) == digest(whole.optimizer->state()));
      CHECK(digest(rest.precision->state()) == digest(whole.precision->state()));
    }
  }
}

TEST_CASE("a checkpoint of another precision can be resumed") {
  Toy full("32-true");
  auto from = full.loop({.max_epochs = 1});
  from->fit();
  Toy low("bf16-true");
  auto to = low.loop({.max_epochs = 2});
  to->load_state(snapshot(*from), {"scaler"});
  CHECK(weights(low) == weights(full));  // the masters are fp32 and equal
  CHECK(torch::equal(low.net->head->weight, full.net->head->weight.to(at::kBFloat16)));
  CHECK(to->fit().history.size() == 1);
}

TEST_CASE("a checkpoint of any mixed or full precision can be resumed in any other, with the same fp32 weights") {
  const std::vector<std::string> modes{"32-true", "bf16-mixed", "16-mixed"};
  for (const auto& from : modes) {
    TempDir dir;
    Toy saved(from, "adamw", 0, {.init_scale = 512});
    CheckpointStore store((dir / "c").string(), {});
    auto before = saved.loop({.max_epochs = 1}, {}, &store);
    before->fit();
    for (const auto& to : modes) {
      CAPTURE(from);
      CAPTURE(to);
      Toy resumed(to, "adamw", 0, {.init_scale = 1024});
      auto after = resumed.loop({.max_epochs = 2});
      after->load_state(load_checkpoint(store.last()));  // loads all of it
      for (const auto& p : resumed.optimizer->parameters()) CHECK((p.value.scalar_type() == at::kFloat));
      CHECK(weights(resumed) == weights(saved));
      CHECK(digest(resumed.optimizer->state()) == digest(saved.optimizer->state()));
      CHECK(torch::equal(resumed.net->norm->running_mean, saved.net->norm->running_mean));
      // A saved scale is restored; without one, the scale keeps its initial value.
      CHECK(resumed.precision->scale() == (to != "16-mixed" ? 1 : from == "16-mixed" ? 512 : 1024));
      CHECK(after->global_step() == before->global_step());
      const auto report = after->train_step({toy_batch()});
      CHECK(report.taken);
      CHECK(std::isfinite(scalar_or(report.metrics, "loss", kNaN)));
      CHECK(report.global_step == before->global_step() + 1);
      CHECK(weights(resumed) != weights(saved));
    }
  }
}

TEST_CASE("another model's checkpoint is refused and changes nothing") {
  Toy toy;
  auto loop = toy.loop({.max_epochs = 1});
  auto state = snapshot(*loop);
  const auto before = weights(toy);
  SUBCASE("misshapen") { state["model"].tensors["head.weight"] = torch::zeros({5, 16}); }
  SUBCASE("missing") { state["model"].tensors.erase("head.bias"); }
  SUBCASE("more") { state["model"].tensors["other"] = torch::zeros({1}); }
  SUBCASE("no optimizer") { state.erase("optimizer"); }
  CHECK(error_of([&] { loop->load_state(state); }).kind() == ErrorKind::Checkpoint);
  CHECK(weights(toy) == before);
}

TEST_CASE("a loss that is not finite ends the run; last and best stay intact") {
  TempDir dir;
  Toy toy;
  CheckpointStore store((dir / "run/checkpoints").string(), {});
  auto loop = toy.loop({.max_epochs = 1}, {}, &store);
  loop->fit();
  const auto last = store.last();
  const auto good = digest(load_checkpoint(last).at("model"));
  auto poisoned = toy.loop({.max_epochs = 5}, {}, &store);
  {
    const torch::NoGradGuard no_grad;
    toy.net->head->weight.fill_(std::nanf(""));
  }
  const auto e = error_of([&] { poisoned->fit(); });
  CHECK(e.kind() == ErrorKind::Diverged);
  CHECK(std::string(e.what()).find("loss is nan") != std::string::npos);
  CHECK(store.last() == last);
  CHECK(digest(load_checkpoint(last).at("model")) == good);
  CHECK(std::filesystem::exists(dir / "run/diverged/manifest.json"));
}

TEST_CASE("weights that are not finite are never written as last") {
  TempDir dir;
  Toy toy;
  CheckpointStore store((dir / "run/checkpoints").string(), {});
  auto loop = toy.loop({.max_epochs = 1}, {}, &store);
  {
    const torch::NoGradGuard no_grad;
    toy.net->norm->bias[0] = INFINITY;
  }
  CHECK(error_of([&] { loop->save_checkpoint(); }).kind() == ErrorKind::Diverged);
  CHECK(store.last() == "");
}

TEST_CASE("overflows at the floor of the scale end the run with the cause") {
  Toy toy("16-mixed", "sgd", 0, {.init_scale = 4, .min_scale = 1});
  toy.train = std::make_shared<TensorDataset>(torch::randn({40, 6}) * 1e6, torch::zeros({40}, torch::kLong), 4);
  toy.val = toy.train;
  const auto before = weights(toy);
  auto loop = toy.loop({.max_epochs = 100, .num_sanity_val_steps = 0, .max_consecutive_skips = 6});
  const auto e = error_of([&] { loop->fit(); });
  CHECK(e.kind() == ErrorKind::Diverged);
  CHECK(std::string(e.what()).find("floor") != std::string::npos);
  CHECK(weights(toy) == before);
  CHECK(loop->global_step() == 0);
}

TEST_CASE("rollback goes back to the last checkpoint with a lower rate") {
  TempDir dir;
  Toy toy;
  CheckpointStore store((dir / "run/checkpoints").string(), {});
  auto loop = toy.loop({.max_epochs = 4, .on_divergence = "rollback"}, {}, &store);
  auto poison = std::make_shared<Poison>();
  poison->toy = &toy;
  poison->at = 2;
  poison->times = 1;
  loop->add_callback(poison);
  const auto r = loop->fit();
  CHECK(r.history.size() == 4);
  CHECK(r.history.back().lr == doctest::Approx(0.01));
  CHECK(torch::isfinite(toy.net->head->weight).all().item<bool>());
}

TEST_CASE("rollback gives up after the second, or when there is nothing to go back to, and keeps the broken state") {
  TempDir dir;
  const auto broken = dir / "run/diverged/manifest.json";
  Toy toy;
  CheckpointStore store((dir / "run/checkpoints").string(), {});
  auto loop = toy.loop({.max_epochs = 4, .on_divergence = "rollback"}, {}, &store);
  auto poison = std::make_shared<Poison>();
  poison->toy = &toy;
  poison->broken = broken;
  loop->add_callback(poison);
  const auto value = [&](const std::string& key) { return loop->state().at("loop").values.at(key); };
  SUBCASE("two checkpoints are there") {
    poison->at = 2;
    CHECK(error_of([&] { loop->fit(); }).kind() == ErrorKind::Diverged);
    CHECK(poison->given == 3);
    CHECK(std::get<int64_t>(value("rollbacks")) == 2);
    CHECK(std::get<double>(value("lr_factor")) == doctest::Approx(0.01));
    CHECK(read_checkpoint_meta(store.last()).global_step == 10);
    CHECK(digest(load_checkpoint(store.last()).at("model")) != digest(load_checkpoint((dir / "run/diverged").string()).at("model")));
  }
  SUBCASE("none is there yet") {
    CHECK(error_of([&] { loop->fit(); }).kind() == ErrorKind::Diverged);
    CHECK(poison->given == 1);
    CHECK(std::get<int64_t>(value("rollbacks")) == 0);
    CHECK(store.last() == "");
  }
  CHECK_FALSE(poison->kept_early);  // kept only if the run cannot go back
  CHECK(std::filesystem::exists(broken));
}

TEST_CASE("the end of a run is saved, whatever the schedule of checkpoints") {
  TempDir dir;
  Toy toy;
  CheckpointStore store((dir / "c").string(), {});
  toy.loop({.max_epochs = 2}, {.every_n_epochs = 0}, &store)->fit();
  CHECK(read_checkpoint_meta(store.last()).global_step == 10);
}

TEST_CASE("a score belongs to the weights that were validated: a later save inside an epoch does not become best") {
  TempDir dir;
  Toy toy;
  CheckpointStore store((dir / "c").string(), {.monitor = "val/acc1", .save_top_k = 1});
  auto loop = toy.loop({.max_epochs = 1}, {.monitor = "val/acc1"}, &store);
  loop->fit();
  const auto best = store.best();
  loop->train_step({toy_batch()});
  loop->save_checkpoint();
  CHECK(store.best() == best);
  CHECK(std::isnan(read_checkpoint_meta(store.last()).score));
}

TEST_CASE("at the end of an epoch a run may continue with another batch size") {
  Toy toy, other;
  auto loop = toy.loop({.max_epochs = 1});
  loop->fit();
  auto next = other.loop({.max_epochs = 2});
  other.train_loader = std::make_unique<Loader>(other.train, Pipeline(), LoaderOptions{.batch_size = 4, .shuffle = true, .seed = 7});
  auto parts = next->parts();
  parts.train_loader = other.train_loader.get();
  TrainLoop resumed(parts, {.max_epochs = 2}, {}, {});
  resumed.load_state(snapshot(*loop));
  CHECK(resumed.fit().history.size() == 1);
}
