// Loaders of several ranks, compared with the loader of one process.
#include "testing.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <map>
#include <optional>
#include <utility>

#include "draining.hpp"
#include "npu_train/data/loader.hpp"
#include "npu_train/data/mixup.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// The complete content of a batch, before and after its pending changes.
struct Content {
  int64_t index = 0, epoch = 0, size = 0;
  double weight = 0;
  std::vector<int64_t> ids;
  std::vector<std::pair<std::string, uint64_t>> fields, finished;
  size_t pending = 0;
  friend bool operator==(const Content&, const Content&) = default;
};

std::vector<std::pair<std::string, uint64_t>> digests_of(const Batch& batch) {
  std::vector<std::pair<std::string, uint64_t>> out;
  for (const auto& [name, tensor] : batch.fields()) out.emplace_back(name, digest(tensor));
  return out;
}

Content content_of(const Batch& batch) {
  return {.index = batch.index,
          .epoch = batch.epoch,
          .size = batch.size,
          .weight = batch.weight,
          .ids = batch.ids,
          .fields = digests_of(batch),
          .finished = digests_of(batch.finished()),
          .pending = batch.pending.size()};
}

/// Loaders of all ranks over the same data.
struct RankLoaders {
  template <class MakeData>
  RankLoaders(MakeData&& data, const Pipeline& pipeline, LoaderOptions with, int64_t world_size) {
    with.world_size = world_size;
    for (with.rank = 0; with.rank < world_size; ++with.rank) loaders.emplace_back(data(), pipeline, with);
  }
  void begin_epoch(int64_t epoch, int64_t first_batch = 0) {
    for (auto& loader : loaders) loader.begin_epoch(epoch, first_batch);
  }
  /// Returns the next batch of each rank that has one, in rank order.
  std::vector<Batch> round() {
    std::vector<Batch> out;
    for (auto& loader : loaders)
      if (auto batch = loader.next()) out.push_back(std::move(*batch));
    return out;
  }
  std::vector<Content> rest() {
    std::vector<Content> out;
    for (;;) {
      const auto batches = round();
      if (batches.empty()) return out;
      for (const auto& batch : batches) out.push_back(content_of(batch));
    }
  }
  std::vector<Loader> loaders;
};

struct RankCase {
  int64_t samples;
  LoaderOptions with;
};

void check_ranks(const RankCase& c, const Pipeline& pipeline) {
  CAPTURE(c.samples);
  CAPTURE(c.with.shuffle);
  CAPTURE(static_cast<int>(c.with.last_batch));
  CAPTURE(c.with.num_workers);
  CAPTURE(c.with.augment_on_device);
  const auto data = [&] { return byte_images(c.samples); };
  RankLoaders one(data, pipeline, c.with, 1);
  one.begin_epoch(2);
  const auto expected = one.rest();
  const auto total = static_cast<int64_t>(expected.size());
  for (int64_t world_size = 1; world_size <= 4; ++world_size) {
    CAPTURE(world_size);
    RankLoaders ranks(data, pipeline, c.with, world_size);
    ranks.begin_epoch(2);
    CHECK((ranks.rest() == expected));
    int64_t batches = 0, samples = 0;
    for (const auto& loader : ranks.loaders) {
      CHECK(loader.cursor() == total);
      CHECK(loader.micro_batches_per_epoch() == total);
      CHECK(loader.rounds_per_epoch() == (total + world_size - 1) / world_size);
      batches += loader.batches_per_epoch().value();
      samples += loader.samples_per_epoch().value();
    }
    CHECK(batches == total);
    CHECK(samples == one.loaders[0].samples_per_epoch());
    const int64_t middle = total / 2;
    ranks.begin_epoch(2, middle);
    CHECK((ranks.rest() == std::vector<Content>(expected.begin() + middle, expected.end())));
  }
}

/// A stream of images whose bytes follow from 0, 1, ...; the samples have no numbers, and the state is the position.
class PartOfStream final : public IterableDataset {
 public:
  explicit PartOfStream(int64_t count) : count_(count) {}
  void begin_epoch(int64_t) override { at_ = index_; }
  std::optional<Sample> next() override {
    if (at_ >= count_) return std::nullopt;
    const auto value = std::exchange(at_, at_ + step_);
    const auto pixels = at::arange(300).add(value * 7).remainder(251).to(at::kByte).reshape({3, 10, 10});
    return Sample{{{"input", pixels}, {"target", at::scalar_tensor(value, at::kLong)}}, -1};
  }
  State state() const override { return {{}, {{"at", at_}}}; }
  void load_state(const State& state) override { at_ = state.integer("at", "part"); }
  void shard(int64_t index, int64_t count) override { index_ = index, step_ = count; }

 private:
  int64_t count_, at_ = 0, index_ = 0, step_ = 1;
};

/// Returns for each sample its number in the loader and a digest of its transformed pixels.
std::map<int64_t, std::pair<int64_t, uint64_t>> samples_of(const std::vector<Batch>& batches) {
  std::map<int64_t, std::pair<int64_t, uint64_t>> out;
  for (const auto& batch : batches)
    for (int64_t i = 0; i < batch.size; ++i) {
      const auto value = batch.target()[i].item<int64_t>();
      CHECK(out.count(value) == 0);  // no sample occurs twice
      out[value] = {batch.ids[static_cast<size_t>(i)], digest(batch.input()[i])};
    }
  return out;
}

std::vector<Batch> all_rounds(RankLoaders& ranks, int64_t at_most = 1000) {
  std::vector<Batch> out;
  for (int64_t k = 0; k < at_most; ++k) {
    auto batches = ranks.round();
    if (batches.empty()) break;
    out.insert(out.end(), batches.begin(), batches.end());
  }
  return out;
}

}  // namespace

TEST_CASE("ranks: their batches, interleaved, have the bits of one process") {
  for (const int64_t samples : {9, 50, 67})  // gives two, seven and nine batches
    for (const bool shuffle : {false, true})
      for (const auto last : {LastBatch::Keep, LastBatch::Drop, LastBatch::Pad})
        for (const int64_t workers : {0, 2})
          for (const bool on_device : {false, true}) {
            auto with = options(workers);
            with.shuffle = shuffle;
            with.last_batch = last;
            with.augment_on_device = on_device;
            with.finish = mix_batches({.mixup_alpha = 0.4, .cutmix_alpha = 1, .num_classes = 7, .seed = 5});
            check_ranks({samples, with}, random_chain());
          }
}

TEST_CASE("ranks: tensors of a program, without transforms") {
  class Squares final : public Dataset {
   public:
    int64_t size() const override { return 21; }
    Sample get(int64_t i) const override { return {{{"input", at::full({2}, static_cast<double>(i * i))}}, i}; }
  };
  const auto data = [] { return std::make_shared<Squares>(); };
  RankLoaders one(data, {}, options(0, 4), 1), three(data, {}, options(0, 4), 3);
  one.begin_epoch(1);
  three.begin_epoch(1);
  CHECK((three.rest() == one.rest()));
}

TEST_CASE("ranks: with fewer batches than ranks the last ranks have none") {
  RankLoaders ranks([] { return byte_images(10); }, random_chain(), options(2), 4);
  ranks.begin_epoch(0);
  CHECK(ranks.loaders[2].batches_per_epoch() == 0);
  CHECK(ranks.loaders[2].samples_per_epoch() == 0);
  CHECK_FALSE(ranks.loaders[2].next().has_value());
  CHECK_FALSE(ranks.loaders[3].next().has_value());
  CHECK(ranks.loaders[0].next()->size == 8);
  CHECK(ranks.loaders[1].next()->size == 2);
  for (auto& loader : ranks.loaders) CHECK(loader.rounds_per_epoch() == 1);
}

TEST_CASE("ranks: an epoch continues on other numbers of ranks with exactly the samples that remain") {
  for (const int64_t workers : {0, 2})
    for (const auto last : {LastBatch::Keep, LastBatch::Drop, LastBatch::Pad}) {
      auto with = options(workers, 4);
      with.last_batch = last;
      with.finish = mix_batches({.mixup_alpha = 0.4, .num_classes = 7, .seed = 5});
      const auto data = [] { return byte_images(57); };  // 15 batches, of which the last has one sample
      RankLoaders one(data, random_chain(), with, 1);
      one.begin_epoch(3);
      std::vector<Content> seen;
      const auto expected = one.rest();
      State state;
      for (const int64_t world_size : {4, 2, 1, 3}) {
        CAPTURE(world_size);
        RankLoaders ranks(data, random_chain(), with, world_size);
        if (state.empty()) {
          ranks.begin_epoch(3);
        } else {
          for (auto& loader : ranks.loaders) {
            loader.load_state(state);
            CHECK(loader.cursor() == static_cast<int64_t>(seen.size()));
            loader.begin_epoch(loader.epoch(), loader.cursor());
          }
        }
        if (world_size == 3) {
          for (auto& content : ranks.rest()) seen.push_back(content);
          break;
        }
        for (const auto& batch : ranks.round()) seen.push_back(content_of(batch));
        state = ranks.loaders[0].state();
        one.begin_epoch(3);
        for (size_t i = 0; i < seen.size(); ++i) one.loaders[0].next();
        CHECK(digest(one.loaders[0].state()) == digest(state));  // the state does not depend on the number of ranks
        for (const auto& loader : ranks.loaders) CHECK(digest(loader.state()) == digest(state));
      }
      CHECK((seen == expected));
    }
}

TEST_CASE("ranks: states of earlier versions load where their position is that of one rank") {
  Loader loader(byte_images(), random_chain(), options(0));
  loader.begin_epoch(1);
  loader.next();
  loader.next();
  auto old = loader.state();
  old.values["world_size"] = int64_t{1};
  RankLoaders two([] { return byte_images(); }, random_chain(), options(0), 2);
  for (auto& rank : two.loaders) {
    rank.load_state(old);
    CHECK(rank.cursor() == 2);
  }
  old.values["world_size"] = int64_t{2};
  const auto error = error_of([&] { two.loaders[0].load_state(old); });
  CHECK(error.kind() == ErrorKind::Checkpoint);
  CHECK(has(error.what(), "2 ranks"));
  old.values["cursor"] = int64_t{0};
  two.loaders[0].load_state(old);
  CHECK(two.loaders[0].cursor() == 0);
}

TEST_CASE("ranks: the parts of a stream have each sample once, transformed as in one process") {
  auto with = options(2, 4);
  with.shuffle = false;
  const auto stream = [] { return std::make_shared<PartOfStream>(30); };
  RankLoaders one(stream, random_chain(), with, 1);
  one.begin_epoch(1);
  const auto expected = samples_of(all_rounds(one));
  CHECK(expected.size() == 30);
  for (int64_t world_size = 2; world_size <= 4; ++world_size) {
    CAPTURE(world_size);
    RankLoaders ranks(stream, random_chain(), with, world_size);
    for (const auto& loader : ranks.loaders) CHECK_FALSE(loader.rounds_per_epoch().has_value());
    ranks.begin_epoch(1);
    const auto first = ranks.round();
    for (int64_t rank = 0; rank < world_size; ++rank) CHECK(first[static_cast<size_t>(rank)].index == rank);  // each draws its own mixing
    CHECK(ranks.round()[1].index == world_size + 1);
    ranks.begin_epoch(1);
    CHECK((samples_of(all_rounds(ranks)) == expected));
  }
}

TEST_CASE("ranks: a stream continues on other numbers of ranks with exactly the samples that remain") {
  auto with = options(0, 4);
  with.shuffle = false;
  const auto stream = [] { return std::make_shared<PartOfStream>(70); };
  RankLoaders one(stream, random_chain(), with, 1);
  one.begin_epoch(1);
  const auto expected = samples_of(all_rounds(one));
  std::vector<Batch> seen;
  State state;
  for (const int64_t world_size : {4, 4, 2, 1, 3}) {
    CAPTURE(world_size);
    RankLoaders ranks(stream, random_chain(), with, world_size);
    for (auto& loader : ranks.loaders) {
      if (!state.empty()) loader.load_state(state);
      loader.begin_epoch(1, loader.cursor());
    }
    for (auto& batch : all_rounds(ranks, world_size == 3 ? 1000 : 1)) seen.push_back(batch);
    CHECK(ranks.loaders[0].state().integer("rank", "") == 0);
    state = ranks.loaders[static_cast<size_t>(world_size / 2)].state();
  }
  CHECK((samples_of(seen) == expected));
}
