#include "testing.hpp"

#include "dist/in_process.hpp"
#include "npu_train/core/log.hpp"
#include "train/callbacks/window_source.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::MemoryRetry;
using npu_train::detail::WindowSource;

namespace {

struct Windows {
  std::vector<size_t> sizes;                  // number of micro-batches of this rank in each window
  std::vector<int64_t> positions;             // position after each window
  std::vector<std::vector<int64_t>> batches;  // numbers of the micro-batches in the epoch
};

// A data set in which samples 8 to 15 cannot be read.
struct WithBadBatch final : Dataset {
  explicit WithBadBatch(std::shared_ptr<Dataset> all) : all_(std::move(all)) {}
  int64_t size() const override { return all_->size(); }
  Sample get(int64_t i) const override {
    check(i < 8 || i > 15, ErrorKind::Data, "test", "sample ", i, " is damaged");
    return all_->get(i);
  }
  std::shared_ptr<Dataset> all_;
};

struct Epoch {
  TrainerOptions options{};
  int64_t position = 0;
  int64_t rank = 0, world_size = 1;
  bool skip_bad_samples = false;
};

/// The source of one rank's windows, and what the source needs.
struct RankWindows {
  RankWindows(Toy& toy, Loader& loader, const TrainerOptions& options)
      : step(toy.step()),
        memory({.task = *toy.task,
                .step = step,
                .observers = toy.observers,
                .device = device_under_test(),
                .enabled = false,
                .train_loader = &loader,
                .ranks = loader.options().world_size,
                .accumulate = options.accumulate_grad_batches,
                .failed = failed}),
        source({.loader = &loader,
                .options = options,
                .clock = clock,
                .observers = toy.observers,
                .step = step,
                .memory = memory,
                .ranks = toy.strategy->ranks()}) {}

  const SteadyClock clock{};
  TrainStep step;
  std::optional<FailedWindow> failed;
  MemoryRetry memory;
  WindowSource source;
};

/// Returns the windows of an epoch of 5 micro-batches on one rank; no other rank runs.
Windows windows_of(const Epoch& epoch) {
  Toy toy;
  if (epoch.skip_bad_samples) toy.train = std::make_shared<WithBadBatch>(toy.train);
  if (epoch.world_size > 1)
    toy.strategy = make_rank(std::make_shared<Exchange>(static_cast<int>(epoch.world_size)), static_cast<int>(epoch.rank), false);
  Loader loader(
      toy.train, Pipeline(),
      LoaderOptions{.batch_size = 8, .skip_bad_samples = epoch.skip_bad_samples, .rank = epoch.rank, .world_size = epoch.world_size});
  RankWindows rank(toy, loader, epoch.options);
  auto& source = rank.source;
  CHECK((source.overfit() != nullptr) == (epoch.options.overfit_batches > 0));
  auto position = epoch.position;
  source.begin_epoch(0, position);
  Windows out;
  double data_wait = 0;
  auto done = source.windows_done(position);
  auto before = position;
  for (; const auto window = source.next(position, data_wait); before = position) {
    REQUIRE(position > before);                                                 // otherwise the epoch would not end
    done += epoch.skip_bad_samples ? source.windows_done(position) - done : 1;  // a window without a sample is skipped
    CHECK(source.windows_done(position) == done);
    for (const auto& batch : *window) CHECK((batch.input().device() == device_under_test().c10()));
    out.sizes.push_back(window->size());
    out.positions.push_back(position);
    out.batches.emplace_back();
    for (const auto& batch : *window) out.batches.back().push_back(batch.index);
  }
  CHECK(source.finished(position));
  CHECK(data_wait >= 0);
  CHECK(source.windows_per_epoch() == done);
  return out;
}

/// A stream that gives `size` samples on this rank.
struct PartOfRank final : IterableDataset {
  explicit PartOfRank(int64_t size) : size_(size) {}
  void begin_epoch(int64_t) override { at_ = 0; }
  std::optional<Sample> next() override { return at_ < size_ ? std::optional(data_->get(at_++)) : std::nullopt; }
  void shard(int64_t, int64_t) override {}
  bool shards_by_sample() const override { return false; }
  State state() const override { return {}; }
  void load_state(const State&) override {}
  std::shared_ptr<Dataset> data_ = toy_data();
  int64_t size_, at_ = 0;
};

struct StreamRank {
  Toy toy;
  TrainerOptions options{};
  std::unique_ptr<Loader> loader;
  std::unique_ptr<RankWindows> windows;
};

/// Returns the warnings of two epochs in which rank r has sizes[r] batches. The first epoch is resumed at `position`.
std::vector<std::string> warnings_of_parts(const std::vector<int64_t>& sizes, int64_t position) {
  std::vector<std::string> warnings;
  const ScopedLogSink sink([&](LogLevel level, std::string_view text) {
    if (level == LogLevel::Warning) warnings.emplace_back(text);
  });
  const auto world_size = static_cast<int64_t>(sizes.size());
  const auto exchange = std::make_shared<Exchange>(static_cast<int>(world_size));
  std::vector<std::unique_ptr<StreamRank>> ranks;
  for (int64_t r = 0; r < world_size; ++r) {
    auto& rank = *ranks.emplace_back(std::make_unique<StreamRank>());
    rank.toy.strategy = make_rank(exchange, static_cast<int>(r), false);
    rank.loader = std::make_unique<Loader>(std::make_shared<PartOfRank>(sizes[static_cast<size_t>(r)]), Pipeline(),
                                           LoaderOptions{.batch_size = 1, .rank = r, .world_size = world_size});
    rank.windows = std::make_unique<RankWindows>(rank.toy, *rank.loader, rank.options);
  }
  on_ranks(*exchange, [&](int r) {
    auto& source = ranks[static_cast<size_t>(r)]->windows->source;
    double data_wait = 0;
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      int64_t at = epoch == 0 ? position : 0;
      source.begin_epoch(epoch, at);
      while (source.next(at, data_wait)) {
      }
    }
  });
  return warnings;
}

using Sizes = std::vector<size_t>;
using Numbers = std::vector<int64_t>;
using Batches = std::vector<std::vector<int64_t>>;

}  // namespace

TEST_CASE("the windows of an epoch, and what limits them") {
  CHECK(windows_of({}).sizes == Sizes{1, 1, 1, 1, 1});
  CHECK(windows_of({.options = {.accumulate_grad_batches = 2}}).sizes == Sizes{2, 2, 1});
  CHECK(windows_of({.options = {.accumulate_grad_batches = 2}, .position = 2}).sizes == Sizes{2, 1});
  CHECK(windows_of({.options = {.limit_train_batches = 3}}).sizes == Sizes{1, 1, 1});
  CHECK(windows_of({.options = {.limit_train_batches = 0}}).sizes.empty());
  CHECK(windows_of({.options = {.overfit_batches = 2}}).sizes == Sizes{1, 1});
  CHECK(windows_of({.options = {.overfit_batches = 2}, .position = 1}).sizes == Sizes{1});
  CHECK(windows_of({.options = {.fast_dev_run = true}}).sizes == Sizes{1});
}

TEST_CASE("the windows of a rank: as many as those of the others, at the same positions, without asking them") {
  const auto first = windows_of({.rank = 0, .world_size = 2}), second = windows_of({.rank = 1, .world_size = 2});
  CHECK(first.batches == Batches{{0}, {2}, {4}});
  CHECK(second.batches == Batches{{1}, {3}, {}});
  CHECK(first.positions == Numbers{2, 4, 5});
  CHECK(second.positions == first.positions);
  const TrainerOptions two{.accumulate_grad_batches = 2};
  CHECK(windows_of({.options = two, .rank = 0, .world_size = 2}).batches == Batches{{0, 2}, {4}});
  CHECK(windows_of({.options = two, .rank = 1, .world_size = 2}).batches == Batches{{1, 3}, {}});
  CHECK(windows_of({.options = two, .rank = 3, .world_size = 4}).batches == Batches{{3}});
}

TEST_CASE("the windows of a rank: limits count its batches") {
  const auto of = [](const TrainerOptions& options, int64_t rank) {
    return windows_of({.options = options, .rank = rank, .world_size = 2}).batches;
  };
  CHECK(of({.limit_train_batches = 1}, 1) == Batches{{1}});
  CHECK(of({.limit_train_batches = 3}, 1) == Batches{{1}, {3}, {}});
  CHECK(of({.limit_train_batches = std::numeric_limits<int64_t>::max()}, 1) == Batches{{1}, {3}, {}});
  CHECK(of({.fast_dev_run = true}, 0) == Batches{{0}});
  CHECK(of({.overfit_batches = 2}, 0) == Batches{{0}, {2}});
  CHECK(of({.overfit_batches = 3}, 1) == Batches{{1}, {3}, {}});
}

TEST_CASE("the windows of a rank: an epoch that other ranks began") {
  const auto from_3 = [](int64_t rank, int64_t world_size, TrainerOptions options = {}) {
    return windows_of({.options = options, .position = 3, .rank = rank, .world_size = world_size}).batches;
  };
  CHECK(from_3(0, 2) == Batches{{3}});
  CHECK(from_3(1, 2) == Batches{{4}});
  CHECK(from_3(0, 1) == Batches{{3}, {4}});
  CHECK(from_3(2, 3) == Batches(1));
  CHECK(from_3(0, 2, {.limit_train_batches = 2}) == Batches{{3}});
  CHECK(from_3(1, 2, {.limit_train_batches = 2}) == Batches(1));
  CHECK(from_3(1, 2, {.overfit_batches = 2}) == Batches{{3}});
}

TEST_CASE("a batch without a readable sample is missing from its window, and moves no other batch") {
  const auto one = windows_of({.options = {.accumulate_grad_batches = 2}, .skip_bad_samples = true});
  CHECK(one.batches == Batches{{0}, {2, 3}, {4}});
  CHECK(one.positions == Numbers{2, 4, 5});
  const auto single = windows_of({.position = 0, .skip_bad_samples = true});
  CHECK(single.batches == Batches{{0}, {2}, {3}, {4}});
  CHECK(single.positions == Numbers{1, 3, 4, 5});
}

TEST_CASE("unequal parts of a stream are reported after each complete epoch, by the ranks with the fewest and the most batches") {
  const auto unequal = warnings_of_parts({3, 1, 2}, 0);
  REQUIRE(unequal.size() == 2);
  for (const auto& warning : unequal) CHECK(has(warning, "rank 1 had the fewest batches (1) and rank 0 the most (3)"));
  CHECK(warnings_of_parts({1, 3}, 2).size() == 1);  // the end of a resumed epoch does not have all of its batches
  CHECK(warnings_of_parts({2, 3}, 0).empty());
  CHECK(warnings_of_parts({3}, 0).empty());
}
