#include "testing.hpp"

#include "train/callbacks/window_source.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::MemoryRetry;
using npu_train::detail::WindowSource;

namespace {

/// The sizes of the windows of an epoch, in micro-batches.
std::vector<size_t> windows_of(const TrainerOptions& options, int64_t batch_in_epoch = 0) {
  Toy toy;
  Loader loader(toy.train, Pipeline(), LoaderOptions{.batch_size = 8});  // 5 batches
  const SteadyClock clock;
  auto step = toy.step();
  std::optional<FailedWindow> failed;
  MemoryRetry memory({.step = step,
                      .observers = toy.observers,
                      .device = device_under_test(),
                      .enabled = false,
                      .full_weight = [](size_t) { return 0.0; },
                      .train_loader = &loader,
                      .accumulate = options.accumulate_grad_batches,
                      .failed = failed});
  WindowSource source({.loader = &loader,
                       .options = options,
                       .clock = clock,
                       .observers = toy.observers,
                       .step = step,
                       .memory = memory,
                       .strategy = *toy.strategy});
  CHECK((source.overfit() != nullptr) == (options.overfit_batches > 0));
  source.begin_epoch(0, batch_in_epoch);
  std::vector<size_t> out;
  double data_wait = 0;
  for (;;) {
    const auto window = source.next(batch_in_epoch, data_wait);
    if (window.empty()) break;
    for (const auto& batch : window) CHECK((batch.input().device() == device_under_test().c10()));
    out.push_back(window.size());
  }
  CHECK(data_wait >= 0);
  if (batch_in_epoch == 0) CHECK(out.empty());
  CHECK(source.windows_per_epoch().value() >= static_cast<int64_t>(out.size()));
  return out;
}

}  // namespace

TEST_CASE("the windows of an epoch, and what limits them") {
  using Sizes = std::vector<size_t>;
  CHECK(windows_of({}) == Sizes{1, 1, 1, 1, 1});
  CHECK(windows_of({.accumulate_grad_batches = 2}) == Sizes{2, 2, 1});
  CHECK(windows_of({.accumulate_grad_batches = 2}, /*batch_in_epoch=*/2) == Sizes{2, 1});
  CHECK(windows_of({.limit_train_batches = 3}) == Sizes{1, 1, 1});
  CHECK(windows_of({.limit_train_batches = 0}).empty());
  CHECK(windows_of({.overfit_batches = 2}) == Sizes{1, 1});
  CHECK(windows_of({.overfit_batches = 2}, 1) == Sizes{1});
  CHECK(windows_of({.fast_dev_run = true}) == Sizes{1});
}
