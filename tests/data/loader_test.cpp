#include "testing.hpp"

#include "npu_train/data/loader.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <set>
#include <thread>
#include <tuple>

#include "draining.hpp"
#include "happens.hpp"
#include "npu_train/data/image_transforms.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// A data set in which sample i is the number i; some samples are slow or bad on request.
class NumberSet : public Dataset {
 public:
  explicit NumberSet(int64_t count, int64_t bad = -1) : count_(count), bad_(bad) {}
  int64_t size() const override { return count_; }
  Sample get(int64_t index) const override {
    if (index % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    if (index == bad_.load()) throw std::runtime_error("the disk is on fire");
    return {{{"input", at::full({2}, static_cast<double>(index))}, {"target", at::scalar_tensor(index % 5, at::kLong)}}, index};
  }
  std::string where(int64_t index) const override { return "numbers/" + std::to_string(index) + ".txt"; }
  void mend() const { bad_.store(-1); }

 private:
  int64_t count_;
  mutable std::atomic<int64_t> bad_;
};

/// Counts the samples that are read before they are allowed.
class LimitedSet : public NumberSet {
 public:
  using NumberSet::NumberSet;
  Sample get(int64_t index) const override {
    if (begun_.fetch_add(1) >= allowed_.load()) beyond_.fetch_add(1);
    return NumberSet::get(index);
  }
  void allow(int64_t samples) { allowed_.store(samples); }
  bool all_begun() const { return begun_.load() >= allowed_.load(); }
  int64_t beyond() const { return beyond_.load(); }

 private:
  std::atomic<int64_t> allowed_{0};
  mutable std::atomic<int64_t> begun_{0}, beyond_{0};
};

}  // namespace

TEST_CASE("the batches are the same for 0, 1 and 4 workers, epoch by epoch") {
  Loader none(byte_images(), random_chain(), options(0)), one(byte_images(), random_chain(), options(1)),
      four(byte_images(), random_chain(), options(4));
  const auto first = epoch_of(none, 0), second = epoch_of(none, 1);
  CHECK(first.size() == 7);
  CHECK(first.back().first.size() == 2);
  CHECK(epoch_of(one, 0) == first);
  CHECK(epoch_of(four, 0) == first);
  CHECK(epoch_of(four, 1) == second);
  CHECK(first != second);
  std::set<int64_t> seen;
  for (const auto& [ids, value] : first) seen.insert(ids.begin(), ids.end());
  CHECK(seen.size() == 50);
  LoaderOptions other = options(4);
  other.seed = 43;
  Loader differs(byte_images(), random_chain(), other);
  CHECK(epoch_of(differs, 0) != first);
}

TEST_CASE("without shuffling samples come in order, each in its place") {
  LoaderOptions plain = options(3, 4);
  plain.shuffle = false;
  Loader loader(std::make_shared<NumberSet>(10), {}, plain);
  loader.begin_epoch(5);
  int64_t next = 0, index = 0;
  while (auto batch = loader.next()) {
    CHECK(batch->epoch == 5);
    CHECK(batch->index == index++);
    CHECK(batch->size == static_cast<int64_t>(batch->ids.size()));
    CHECK(batch->weight == static_cast<double>(batch->size));
    for (int64_t i = 0; i < batch->size; ++i, ++next) {
      CHECK(batch->ids[i] == next);
      CHECK(batch->input()[i][1].item<float>() == static_cast<float>(next));
      CHECK(batch->target()[i].item<int64_t>() == next % 5);
    }
  }
  CHECK(next == 10);
  CHECK(!loader.next().has_value());
}

TEST_CASE("an epoch begun in its middle continues as if it had not been interrupted") {
  for (const int64_t workers : {0, 3}) {
    Loader whole(byte_images(), random_chain(), options(workers)), part(byte_images(), random_chain(), options(workers));
    const auto all = epoch_of(whole, 2);
    part.begin_epoch(2);
    part.next();
    part.next();
    part.next();
    const State state = part.state();
    CHECK(state.integer("cursor", "") == 3);
    Loader resumed(byte_images(), random_chain(), options(workers));
    resumed.load_state(state);
    CHECK(resumed.epoch() == 2);
    CHECK(resumed.cursor() == 3);
    const auto rest = epoch_of(resumed, resumed.epoch(), resumed.cursor());
    CHECK(rest == decltype(rest)(all.begin() + 3, all.end()));
  }
}

TEST_CASE("a state that does not fit is refused and changes nothing") {
  Loader loader(byte_images(), random_chain(), options(0));
  loader.begin_epoch(1);
  loader.next();
  const State state = loader.state();
  const auto refused = [&](int64_t count, const LoaderOptions& with, const State& given) {
    Loader other(byte_images(count), random_chain(), with);
    const Error error = error_of([&] { other.load_state(given); });
    CHECK(other.cursor() == 0);
    return error.kind();
  };
  CHECK(refused(49, options(0), state) == ErrorKind::Checkpoint);
  CHECK(refused(50, options(0, 4), state) == ErrorKind::Checkpoint);
  LoaderOptions plain = options(0);
  plain.shuffle = false;
  CHECK(refused(50, plain, state) == ErrorKind::Checkpoint);
  State broken = state;
  broken.values.erase("seed");
  CHECK(refused(50, options(0), broken) == ErrorKind::Checkpoint);
  loader.begin_epoch(1);
  Loader other(byte_images(), random_chain(), options(0, 4));  // another batch size is allowed between epochs
  other.load_state(loader.state());
  Loader more(byte_images(49), random_chain(), options(0));  // and so are other data
  more.load_state(loader.state());
  CHECK(more.epoch() == 1);
}

TEST_CASE("a last batch that is not full is kept, dropped or padded with a mask") {
  LoaderOptions with = options(2);
  with.last_batch = LastBatch::Drop;
  Loader drop(byte_images(), random_chain(), with);
  CHECK(drop.batches_per_epoch() == 6);
  CHECK(drop.samples_per_epoch() == 48);
  CHECK(epoch_of(drop, 0).size() == 6);

  with.last_batch = LastBatch::Pad;
  for (const auto& data : {byte_images(), std::shared_ptr<const Dataset>(std::make_shared<NumberSet>(50))}) {
    Loader pad(data, dynamic_cast<const ImageDataset*>(data.get()) != nullptr ? random_chain() : Pipeline(), with);
    CHECK(pad.batches_per_epoch() == 7);
    pad.begin_epoch(0);
    for (int i = 0; i < 6; ++i) CHECK(pad.next()->at("mask").sum().item<float>() == 8.0f);
    const Batch last = *pad.next();
    CHECK(last.size == 2);
    CHECK(last.weight == 2.0);
    CHECK(last.ids.size() == 2);
    CHECK(last.input().size(0) == 8);
    CHECK(last.at("mask").sum().item<float>() == 2.0f);
    CHECK(last.at("mask")[1].item<float>() == 1.0f);
    CHECK(last.input()[2].equal(last.input()[0]));
    CHECK(last.target()[3].item<int64_t>() == last.target()[1].item<int64_t>());
    CHECK(!pad.next().has_value());
  }
}

TEST_CASE("channels_last changes the order in memory, not the values") {
  LoaderOptions with = options(2);
  Loader planes(byte_images(), random_chain(), with);
  with.channels_last = true;
  Loader last(byte_images(), random_chain(), with);
  planes.begin_epoch(0);
  last.begin_epoch(0);
  while (auto batch = planes.next()) {
    const Batch other = *last.next();
    CHECK(other.input().is_contiguous(at::MemoryFormat::ChannelsLast));
    CHECK(other.input().equal(batch->input()));
  }
}

TEST_CASE("an error in a worker names sample and file, in order; the loader continues") {
  for (const int64_t workers : {0, 4}) {
    CAPTURE(workers);
    LoaderOptions plain = options(workers, 4);
    plain.shuffle = false;
    const auto data = std::make_shared<NumberSet>(40, 9);
    Loader loader(data, {}, plain);
    loader.begin_epoch(0);
    CHECK(loader.next()->ids[0] == 0);
    CHECK(loader.next()->ids[0] == 4);
    const std::string what = error_of([&] { loader.next(); }).what();
    CHECK(what == "[Loader] sample 9 (numbers/9.txt): the disk is on fire");
    CHECK(loader.next()->ids[0] == 12);
    loader.begin_epoch(0);
    loader.next();
    data->mend();
    loader.begin_epoch(1);
    CHECK(drain(loader).size() == 10);
  }
}

TEST_CASE("a loader may go at any moment, also with errors and full queues") {
  for (int round = 0; round < 20; ++round) {
    CAPTURE(round);
    const auto data = std::make_shared<NumberSet>(60, round % 2 == 0 ? 7 : -1);
    int batches = 0, errors = 0;
    {
      Loader loader(data, {}, options(4, 4));
      loader.begin_epoch(round);
      for (int i = 0; i < round % 5; ++i) {
        try {
          batches += loader.next() ? 1 : 0;
        } catch (const Error& e) {
          CHECK(has(e.what(), "sample 7"));
          ++errors;
        }
      }
      if (round % 3 == 0) loader.begin_epoch(round + 1);
    }
    CHECK(batches + errors == round % 5);
    CHECK(errors <= (round % 2 == 0 ? 1 : 0));
    CHECK(data.use_count() == 1);  // no worker reads it any longer
  }
}

TEST_CASE("the queue is bounded: workers wait for the consumer") {
  constexpr int64_t kBatch = 4, kAhead = 2 * 3;
  const auto data = std::make_shared<LimitedSet>(4000);
  LoaderOptions with = options(2, kBatch);
  with.prefetch_factor = 3;
  Loader loader(data, {}, with);
  data->allow(kAhead * kBatch);
  loader.begin_epoch(0);
  // Workers that did not wait would read more while this thread waits for the last sample that they may begin.
  for (int64_t taken = 1; taken <= 100; ++taken) {
    REQUIRE(happens([&] { return data->all_begun(); }));
    data->allow((kAhead + taken) * kBatch);
    loader.next();
  }
  CHECK(data->beyond() == 0);
}

TEST_CASE("hooks: one on each finished batch, one for the caller") {
  std::atomic<int> finished{0};
  const auto caller = std::this_thread::get_id();
  LoaderOptions with = options(2);
  with.finish = [&](Batch batch) {
    CHECK(std::this_thread::get_id() != caller);
    batch.set("extra", at::scalar_tensor(batch.index));
    ++finished;
    return batch;
  };
  with.transfer = [&](Batch batch) {
    CHECK(std::this_thread::get_id() == caller);
    CHECK(batch.has("extra"));
    batch.set("moved", at::scalar_tensor(1));
    return batch;
  };
  Loader loader(byte_images(), random_chain(), with);
  loader.begin_epoch(0);
  int batches = 0;
  while (auto batch = loader.next()) batches += batch->has("moved") ? 1 : 0;
  CHECK(batches == 7);
  CHECK(finished == 7);
  with.finish = [](Batch) -> Batch { throw std::runtime_error("no pinned memory"); };
  Loader failing(byte_images(), random_chain(), with);
  failing.begin_epoch(0);
  CHECK(std::string(error_of([&] { failing.next(); }).what()).find("no pinned memory") != std::string::npos);
}

TEST_CASE("impossible loaders are refused with the numbers") {
  const Error large = error_of([] { Loader(byte_images(5), random_chain(), options(0, 8)); });
  CHECK(large.kind() == ErrorKind::Usage);
  CHECK(std::string(large.what()).find("8") != std::string::npos);
  CHECK(std::string(large.what()).find("5 samples") != std::string::npos);
  CHECK(error_of([] { Loader(byte_images(), random_chain(), options(0, 0)); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { Loader(byte_images(), random_chain(), options(-1)); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { Loader(std::make_shared<NumberSet>(0), {}, options(0)); }).kind() == ErrorKind::Data);
  Loader early(byte_images(), random_chain(), options(0));
  CHECK(error_of([&] { early.next(); }).kind() == ErrorKind::Usage);
  CHECK(error_of([&] { early.begin_epoch(0, 8); }).kind() == ErrorKind::Usage);
  CHECK(has(large.what(), "hint: data.batch_size=5"));
  LoaderOptions plain = options(0, 2);
  plain.shuffle = false;
  Loader numbers(std::make_shared<NumberSet>(4), random_chain(), plain);
  numbers.begin_epoch(0);
  CHECK(std::string(error_of([&] { numbers.next(); }).what()).find("uint8") != std::string::npos);
}

TEST_CASE("transforms apply to a user's bytes as well") {
  class Bytes : public Dataset {
   public:
    int64_t size() const override { return 6; }
    Sample get(int64_t index) const override {
      return {{{"input", at::full({3, 9, 9}, static_cast<double>(index * 10), at::kByte)}, {"target", at::scalar_tensor(0, at::kLong)}},
              index};
    }
  };
  LoaderOptions with = options(2, 3);
  with.shuffle = false;
  with.channels_last = true;
  Loader loader(std::make_shared<Bytes>(), Pipeline({std::make_shared<CenterCrop>(4)}, {{0.0}, {1.0}}), with);
  loader.begin_epoch(0);
  const Batch batch = *loader.next();
  CHECK(batch.input().sizes() == at::IntArrayRef({3, 3, 4, 4}));
  CHECK(batch.input().is_contiguous(at::MemoryFormat::ChannelsLast));
  CHECK(batch.input()[2][1][1][1].item<float>() == doctest::Approx(20.0 / 255.0));
}

TEST_CASE("workers: auto, or a number") {
  CHECK(cpu_count() >= 1);
  CHECK(parse_num_workers("auto") == std::min<int64_t>(16, cpu_count()));
  CHECK(parse_num_workers("0") == 0);
  CHECK(parse_num_workers("12") == 12);
  for (const char* bad : {"-1", "many", "3.5", "", "5000"}) CHECK(error_of([&] { parse_num_workers(bad); }).kind() == ErrorKind::Usage);
}

TEST_CASE("samples that cannot be stacked are reported with what helps") {
  struct Pairs final : Dataset {
    std::vector<at::Tensor> inputs;
    int64_t size() const override { return 2; }
    Sample get(int64_t index) const override { return {{{"input", inputs[static_cast<size_t>(index)]}}, index}; }
  };
  const auto ids = [](int64_t n) { return at::zeros({n}, at::kLong); };
  const std::tuple<at::Tensor, at::Tensor, const char*> cases[] = {
      {ids(3), ids(4), "they must be equal; hint: derive the data set from SequenceDataset"},
      {at::zeros({3, 4}), at::zeros({3, 5}), "they must be equal; hint: crop or pad them to one shape"},
      {at::zeros({3}), ids(3), "they must be equal; hint: convert all of them to one dtype"},
  };
  for (const auto& [a, b, words] : cases) {
    const auto data = std::make_shared<Pairs>();
    data->inputs = {a, b};
    LoaderOptions plain = options(0, 2);
    plain.shuffle = false;
    Loader loader(data, {}, plain);
    loader.begin_epoch(0);
    const auto e = error_of([&] { loader.next(); });
    CHECK(e.kind() == ErrorKind::Data);
    CHECK_MESSAGE(has(e.what(), words), e.what());
  }
}
