// The end of a run whose loss scale cannot fall further.
#include "testing.hpp"

#include "npu_train/train/loop.hpp"
#include "npu_train/train/overflow_report.hpp"
#include "toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Replaces the training data by inputs with which the forward overflows at any loss scale.
void overflow_always(Toy& toy) {
  torch::manual_seed(3);
  toy.train = std::make_shared<TensorDataset>(torch::randn({400, 6}) * 1e7, torch::zeros({400}, torch::kLong), 4);
}

Error end_of(GradScalerOptions scaler, int64_t max_skips, std::vector<OverflowReport>* reports = nullptr) {
  Toy toy("16-mixed", "sgd", 0, scaler);
  overflow_always(toy);
  struct Collect : Callback {
    std::vector<OverflowReport>* to = nullptr;
    void on_overflow(TrainLoop&, const OverflowReport& r) override {
      if (to != nullptr) to->push_back(r);
    }
  };
  auto loop = toy.loop({.max_epochs = 3, .max_consecutive_skips = max_skips});
  const auto collect = std::make_shared<Collect>();
  collect->to = reports;
  loop->add_callback(collect);
  return error_of([&] { loop->fit(); });
}

}  // namespace

TEST_CASE("the end at the floor names the number of overflows, the floor, the layer that causes them and a remedy") {
  std::vector<OverflowReport> reports;
  const auto e = end_of({.init_scale = 8}, 32, &reports);
  CHECK(e.kind() == ErrorKind::Diverged);
  CHECK(static_cast<int>(e.kind()) == 5);
  const std::string text = e.what();
  for (const char* part : {"times in a row", "its floor of 1", "cause: forward, ", "of first", "amp.fp32_modules", "learning rate"}) {
    CAPTURE(std::string(part));
    CHECK(has(text, part));
  }
  CHECK(reports.size() == 1);
}

TEST_CASE("a run that ends before a row of skips is explained is explained at its end") {
  for (const int64_t max_skips : {int64_t{1}, int64_t{2}, int64_t{5}}) {
    CAPTURE(max_skips);
    std::vector<OverflowReport> reports;
    const auto e = end_of({.init_scale = 4}, max_skips, &reports);
    CHECK(e.kind() == ErrorKind::Diverged);
    CHECK(has(e.what(), "cause: forward, "));
    CHECK(reports.size() == 1);
  }
}

TEST_CASE("the run ends at the overflow that is one too many, and names it") {
  struct HugeAtFirst final : Dataset {
    int64_t size() const override { return 80; }
    Sample get(int64_t index) const override {
      const double factor = calls++ < 24 ? 1e7 : 1;  // overflows in three batches
      return {{{"input", at::arange(6, at::kFloat) * factor}, {"target", at::scalar_tensor(index % 4, at::kLong)}}, index};
    }
    mutable int calls = 0;
  };
  for (const int64_t max_skips : {int64_t{3}, int64_t{4}}) {
    Toy toy("16-mixed", "sgd", 0, {.init_scale = 16, .dynamic = false});
    toy.train = std::make_shared<HugeAtFirst>();
    auto loop = toy.loop({.max_epochs = 1, .max_consecutive_skips = max_skips});
    if (max_skips == 4) {
      CHECK(loop->fit().skipped_steps == 3);
      continue;
    }
    const auto e = error_of([&] { loop->fit(); });
    CHECK(e.kind() == ErrorKind::Diverged);
    CHECK(has(e.what(), "overflowed 3 times in a row"));
    CHECK(has(e.what(), "at step 2 (epoch 0)"));
    CHECK(loop->batches_seen() == 3);
  }
}

TEST_CASE("a fixed scale has no floor") {
  const auto e = end_of({.init_scale = 16, .dynamic = false}, 3);
  CHECK(e.kind() == ErrorKind::Diverged);
  CHECK(has(e.what(), "the loss scale stays at 16 (grad_scaler.dynamic: false)"));
  CHECK(has(e.what(), "cause: forward, "));
}

TEST_CASE("hysteresis puts off the floor, not the end") {
  std::vector<OverflowReport> reports;
  CHECK(end_of({.init_scale = 4, .hysteresis = 6}, 5, &reports).kind() == ErrorKind::Diverged);
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].skip_streak >= 7);  // five are not enough: the first 5 keep the scale, the 6th and 7th bring it to 1
}
