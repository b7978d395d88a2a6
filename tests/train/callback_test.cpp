#include "testing.hpp"

#include "npu_train/train/callback.hpp"

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

TEST_CASE("callbacks come in order, every step once") {
  TempDir dir;
  Toy toy;
  CheckpointStore store((dir / "c").string(), {});
  auto loop = toy.loop({.max_epochs = 2}, {}, &store);
  auto notes = std::make_shared<Notes>();
  loop->add_callback(notes);
  loop->fit();
  CHECK(notes->text == "F(sssssv)c(sssssv)c.");
  CHECK(notes->attempts == std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("an exception of a callback ends fit as an Error, and the loop can go on afterwards") {
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
  CHECK(std::string(e.what()).find("mine") != std::string::npos);
  CHECK(loop->fit().history.size() == 1);
}
