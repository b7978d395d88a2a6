#include "testing.hpp"

#include "npu_train/tools/runs/verify_resume.hpp"

#include <algorithm>

using namespace npu_train;

namespace {

/// Configures a transformer with dropout, so that the generators matter, and with EMA and loss scaling, so that every part has a state.
RunConfig config() {
  RunConfig c{.device = "cpu", .precision = "16-mixed"};
  c.model = {.name = "vit_tiny_cifar10", .options = {{"depth", 1}, {"dim", 32}, {"heads", 2}, {"patch_size", 8}, {"dropout", 0.2}}};
  c.data = {.name = "generated", .options = {{"train_size", 80}, {"val_size", 16}, {"batch_size", 16}, {"num_workers", "4"}}};
  c.optimizer = {.name = "adamw"};
  c.lr_scheduler = {.name = "cosine", .options = {{"interval", "step"}}};
  c.grad_scaler.growth_interval = 2;
  c.trainer.threads = 1;
  c.average.enabled = true;
  return c;
}

}  // namespace

TEST_CASE("a configuration with every kind of state resumes bit for bit, inside an epoch and over its end") {
  for (const int64_t steps : {3, 5}) {
    const auto report = verify_resume(config(), builtin_parts(), {.steps = steps});
    CAPTURE(report.str());
    CHECK(report.passed);
    CHECK(report.digest.size() == 16);
  }
}

TEST_CASE("whatever part is omitted, the check fails and names it") {
  for (const char* part : {"model", "optimizer", "scaler", "ema", "rng", "loader", "loop"}) {
    CAPTURE(part);
    const auto report = verify_resume(config(), builtin_parts(), {.steps = 3, .leave_out = {part}});
    CHECK_FALSE(report.passed);
    CHECK(report.not_restored == std::vector<std::string>{part});
    CHECK(report.str().find(part) != std::string::npos);
  }
}
