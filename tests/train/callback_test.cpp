#include "testing.hpp"

#include "npu_train/train/callback.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {
struct Notes final : Callback {
  std::string text;
  std::vector<int64_t> attempts;
  void on_fit_start(TrainLoop&) override { text += "F"; }
  void on_epoch_start(TrainLoop&, int64_t) override { text += "("; }
  void on_step_end(TrainLoop&, const StepReport& r) override {
    text += "s";
    attempts.push_back(r.attempt);
  }
  void on_validation_end(TrainLoop&, const Scalars&) override { text += "v"; }
  void on_epoch_end(TrainLoop&, const EpochReport&) override { text += ")"; }
  void on_checkpoint(TrainLoop&, const std::string&) override { text += "c"; }
  void on_fit_end(TrainLoop&, const RunResult&) override { text += "."; }
};
}  // namespace

namespace {

/// Lowers the rate once, after a number of epochs, and records what it has seen.
struct Patient final : Callback {
  std::string name() const override { return "patient"; }
  State state() const override {
    State out{{}, {{"epochs", epochs}, {"last_loss", last_loss}}};
    if (losses.defined()) out.tensors["losses"] = losses;
    return out;
  }
  void load_state(const State& state) override {
    epochs = state.integer("epochs", "patient");
    last_loss = state.number("last_loss", "patient");
    losses = state.tensors.count("losses") > 0 ? state.tensor("losses", "patient") : at::Tensor();
  }
  void on_epoch_end(TrainLoop& loop, const EpochReport& report) override {
    last_loss = scalar_or(report.train, "loss", 0);
    const auto newest = torch::full({1}, last_loss);
    losses = losses.defined() ? at::cat({losses, newest}) : newest;
    if (++epochs == 3) loop.set_lr_factor(0.1);
  }
  int64_t epochs = 0;
  double last_loss = 0;
  at::Tensor losses;
};

}  // namespace

TEST_CASE("a callback with a state continues with it: a resumed run equals an uninterrupted one, bit for bit") {
  for (const int64_t at : {1, 2, 3}) {
    CAPTURE(at);
    TempDir dir;
    Toy whole, half, rest;
    const auto a = std::make_shared<Patient>(), b = std::make_shared<Patient>(), c = std::make_shared<Patient>();
    auto whole_loop = whole.loop({.max_epochs = 5});
    whole_loop->add_callback(a);
    whole_loop->fit();
    CheckpointStore store((dir / "c").string(), {});
    auto half_loop = half.loop({.max_epochs = at}, {}, &store);
    half_loop->add_callback(b);
    half_loop->fit();
    auto rest_loop = rest.loop({.max_epochs = 5});
    rest_loop->add_callback(c);
    rest_loop->load_state(load_checkpoint(store.last()));
    CHECK(c->epochs == at);
    CHECK(torch::equal(c->losses, b->losses));
    rest_loop->fit();
    CHECK(weights(rest) == weights(whole));
    CHECK(c->epochs == 5);
    CHECK(torch::equal(c->losses, a->losses));
  }
}

TEST_CASE("a rollback takes the states of callbacks back to the checkpoint") {
  struct Spoils final : Callback {
    Toy* toy = nullptr;
    std::shared_ptr<Patient> patient;
    std::vector<int64_t> seen;
    int times = 1;
    void on_epoch_start(TrainLoop&, int64_t epoch) override {
      seen.push_back(patient->epochs);
      if (epoch != 2 || times-- == 0) return;
      const torch::NoGradGuard no_grad;
      toy->net->head->weight.fill_(std::nanf(""));
      patient->epochs = 100;
    }
  };
  TempDir dir;
  Toy toy;
  CheckpointStore store((dir / "run/checkpoints").string(), {});
  auto loop = toy.loop({.max_epochs = 4, .on_divergence = "rollback"}, {}, &store);
  const auto patient = std::make_shared<Patient>();
  const auto spoils = std::make_shared<Spoils>();
  spoils->toy = &toy;
  spoils->patient = patient;
  loop->add_callback(patient);
  loop->add_callback(spoils);
  loop->fit();
  CHECK(spoils->seen == std::vector<int64_t>{0, 1, 2, 2, 3});
}

TEST_CASE("a state without a name and a name that is taken are refused before the first step") {
  struct Nameless final : Callback {
    State state() const override { return {{}, {{"count", int64_t{1}}}}; }
  };
  Toy toy;
  auto loop = toy.loop({.max_epochs = 1});
  loop->add_callback(std::make_shared<Nameless>());
  const auto e = error_of([&] { loop->fit(); });
  CHECK(e.kind() == ErrorKind::Usage);
  CHECK(has(e.what(), "Callback::name()"));
  CHECK(loop->batches_seen() == 0);
  auto other = toy.loop({});
  other->add_callback(std::make_shared<Patient>());
  CHECK(error_of([&] { other->add_callback(std::make_shared<Patient>()); }).kind() == ErrorKind::Usage);
}

TEST_CASE("callbacks come in order, every step once") {
  TempDir dir;
  Toy toy;
  CheckpointStore store((dir / "c").string(), {});
  auto loop = toy.loop({.max_epochs = 2}, {.async = false}, &store);
  auto notes = std::make_shared<Notes>();
  loop->add_callback(notes);
  loop->fit();
  CHECK(notes->text == "F(sssssv)c(sssssv)c.");
  CHECK(notes->attempts == std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("callbacks are notified once of each checkpoint that is written while training continues, when it is complete") {
  struct Paths final : Callback {
    std::vector<int64_t> steps;
    bool ended = false;
    void on_checkpoint(TrainLoop&, const std::string& path) override {
      CHECK_FALSE(ended);
      steps.push_back(read_checkpoint_meta(path).global_step);
    }
    void on_fit_end(TrainLoop&, const RunResult&) override { ended = true; }
  };
  TempDir dir;
  Toy toy;
  CheckpointStore store((dir / "c").string(), {.save_top_k = -1});
  auto loop = toy.loop({.max_epochs = 2}, {.save_top_k = -1, .every_n_train_steps = 2}, &store);
  const auto paths = std::make_shared<Paths>();
  loop->add_callback(paths);
  const auto result = loop->fit();
  CHECK(paths->ended);
  // The last checkpoint is saved again, with the score of its validation.
  CHECK(paths->steps == std::vector<int64_t>{2, 4, 5, 6, 8, 10, 10});
  CHECK(read_checkpoint_meta(result.last_checkpoint).global_step == 10);
}

TEST_CASE("a failed save during training is reported by one step, and the last state is saved") {
  TempDir dir;
  Toy toy;
  CheckpointStore store((dir / "c").string(), {});
  auto loop = toy.loop({.max_epochs = 1}, {.every_n_epochs = 0, .every_n_train_steps = 2}, &store);
  auto notes = std::make_shared<Notes>();
  loop->add_callback(notes);
  std::ofstream(dir / "c") << "in the way";
  CHECK((error_of([&] { loop->fit(); }).kind() == ErrorKind::Checkpoint));
  std::filesystem::remove(dir / "c");
  const auto result = loop->fit();
  CHECK(notes->attempts == std::vector<int64_t>{0, 1, 2, 3, 4});
  REQUIRE_FALSE(result.last_checkpoint.empty());
  CHECK(read_checkpoint_meta(result.last_checkpoint).global_step == 5);
}

TEST_CASE("an epoch of a program's own loop ends with its saves written") {
  TempDir dir;
  Toy toy;
  CheckpointStore store((dir / "c").string(), {.save_top_k = -1});
  auto loop = toy.loop({.max_epochs = 1}, {.every_n_train_steps = 5}, &store);
  auto notes = std::make_shared<Notes>();
  loop->add_callback(notes);
  loop->train_epoch();
  CHECK(std::count(notes->text.begin(), notes->text.end(), 'c') == 1);
  CHECK(store.finish().empty());
}

TEST_CASE("an exception of a callback ends fit as an Error, and the loop can continue afterwards") {
  struct Bad final : Callback {
    bool armed = true;
    void on_step_end(TrainLoop&, const StepReport&) override {
      if (std::exchange(armed, false)) throw std::runtime_error("mine");
    }
  };
  Toy toy;
  auto loop = toy.loop({.max_epochs = 1});
  loop->add_callback(std::make_shared<Bad>());
  const auto e = error_of([&] { loop->fit(); });
  CHECK(std::string(e.what()) == "[Callback] mine");
  CHECK(e.kind() == ErrorKind::Usage);  // not Internal, which would mean a defect of the library
  CHECK(loop->fit().history.size() == 1);
}
