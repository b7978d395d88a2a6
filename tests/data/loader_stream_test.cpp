#include "testing.hpp"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include "draining.hpp"
#include "npu_train/data/loader.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// A stream that gives 0, 1, ...; its state is the position.
class Counting : public IterableDataset {
 public:
  explicit Counting(int64_t count) : count_(count) {}
  void begin_epoch(int64_t epoch) override {
    at_ = index_;
    epoch_ = epoch;
  }
  std::optional<Sample> next() override {
    if (at_ == bad) throw std::runtime_error("broken pipe");
    if (at_ >= count_) return std::nullopt;
    Sample sample{{{"input", at::tensor({static_cast<float>(at_ + 1000 * epoch_)})}, {"target", at::scalar_tensor(at_, at::kLong)}}, at_};
    at_ += step_;
    return sample;
  }
  State state() const override {
    State out;
    out.values["at"] = at_;
    return out;
  }
  void load_state(const State& state) override { at_ = state.integer("at", "counting"); }
  void shard(int64_t index, int64_t count) override { index_ = index, step_ = count; }
  int64_t bad = -1;

 private:
  int64_t count_, at_ = 0, index_ = 0, step_ = 1, epoch_ = 0;
};

}  // namespace

TEST_CASE("a stream: in order for any number of workers, resumed at the batch given last") {
  Drained expected;
  for (const int64_t workers : {0, 1, 4}) {
    LoaderOptions with = options(workers, 4);
    with.shuffle = false;
    Loader loader(std::make_shared<Counting>(30), {}, with);
    CHECK(!loader.batches_per_epoch().has_value());
    const auto all = epoch_of(loader, 1);
    CHECK(all.size() == 8);
    CHECK(all.back().first == std::vector<int64_t>{28, 29});
    if (expected.empty()) expected = all;
    CHECK(all == expected);
    loader.begin_epoch(1);
    loader.next();
    loader.next();
    const State state = loader.state();
    CHECK(state.integer("stream/at", "") == 8);
    Loader resumed(std::make_shared<Counting>(30), {}, with);
    resumed.load_state(state);
    CHECK(epoch_of(resumed, 1, 2) == decltype(expected)(expected.begin() + 2, expected.end()));
    CHECK(epoch_of(resumed, 1, 3) == decltype(expected)(expected.begin() + 3, expected.end()));
    with.rank = 1;
    with.world_size = 2;
    Loader half(std::make_shared<Counting>(30), {}, with);
    CHECK(epoch_of(half, 0).front().first == std::vector<int64_t>{1, 3, 5, 7});
  }
}

TEST_CASE("a stream that breaks says where; shuffling one is refused") {
  for (const int64_t workers : {0, 2}) {
    LoaderOptions with = options(workers, 4);
    with.shuffle = false;
    const auto stream = std::make_shared<Counting>(30);
    stream->bad = 6;
    Loader loader(stream, {}, with);
    loader.begin_epoch(0);
    loader.next();
    const std::string what = error_of([&] { loader.next(); }).what();
    CHECK(what.find("broken pipe") != std::string::npos);
    CHECK(what.find("sample 6") != std::string::npos);
  }
  CHECK(error_of([] { Loader(std::make_shared<Counting>(3), {}, options(0)); }).kind() == ErrorKind::Usage);
}
