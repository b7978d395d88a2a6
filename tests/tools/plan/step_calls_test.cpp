#include "testing.hpp"

#include <algorithm>
#include <memory>
#include <tuple>

#include "tools/plan/recorded_calls.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

using Kind = StepCall::Kind;

struct Ended final : Collective {
  bool done() override { return true; }
  void wait() override {}
};

// One of several ranks; the others send the same as this one.
class RecordingGroup final : public ProcessGroup {
 public:
  RecordingGroup(int rank, int size, std::shared_ptr<Recorded> seen) : rank_(rank), size_(size), seen_(std::move(seen)) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks) override {
    const auto own = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    return std::make_shared<RecordingGroup>(static_cast<int>(own), static_cast<int>(ranks.size()), seen_);
  }
  std::unique_ptr<Collective> all_to_all(const at::Tensor& out, const at::Tensor& in) override {
    seen_->note(Kind::AllToAll, in, size_);
    out.copy_(in.narrow(0, rank_ * (in.numel() / size_), in.numel() / size_).repeat({size_}));
    return std::make_unique<Ended>();
  }
  std::unique_ptr<Collective> all_reduce(const at::Tensor& tensor) override {
    seen_->note(Kind::AllReduce, tensor, size_);
    return std::make_unique<Ended>();
  }
  std::unique_ptr<Collective> reduce(const at::Tensor& tensor) override {
    seen_->note(Kind::Reduce, tensor, size_);
    return std::make_unique<Ended>();
  }
  std::unique_ptr<Collective> distribute(const at::Tensor& tensor) override {
    seen_->note(Kind::Distribute, tensor, size_);
    return std::make_unique<Ended>();
  }
  std::unique_ptr<Collective> all_gather(const at::Tensor& out, const at::Tensor& in) override {
    seen_->note(Kind::AllGather, out, size_);
    out.copy_(in.repeat({size_}));
    return std::make_unique<Ended>();
  }
  std::vector<std::string> gather(const std::string& /*call*/, const std::string& own) override {
    seen_->note_agreement(own);
    return std::vector<std::string>(static_cast<size_t>(size_), own);
  }
  void broadcast(const at::Tensor& /*tensor*/) override {}
  void main_first(const std::function<void()>& work) override { work(); }
  void abandon() noexcept override {}

 private:
  int rank_, size_;
  std::shared_ptr<Recorded> seen_;
};

void check_calls(const RunConfig& config, const Placement& placement, int rank) {
  const auto seen = recorded(config, [&](std::shared_ptr<Recorded> recorder, const DistOptions& /*dist*/) {
    return std::make_shared<RecordingGroup>(rank, placement.ranks, std::move(recorder));
  });
  CHECK(planned(config, placement, rank).text() == seen.text());
}

}  // namespace

TEST_CASE("the planned collectives are those that the engine calls") {
  const std::vector<std::tuple<std::string, int64_t, int, Options>> cases = {
      {"ddp", 1, 0, {}},
      {"ddp", 2, 0, {}},
      {"ddp", 2, 0, {{"reduce", "micro_batch"}}},
      {"ddp", 1, 0, {{"reduction", "native"}}},
      {"ddp", 1, 0, {{"reduce_dtype", "bf16"}}},
      {"ddp", 1, 0, {{"compression", "int8"}}},
      {"zero1", 2, 0, {}},
      {"zero1", 1, 0, {{"compression", "int8"}}},
      {"zero1", 1, 2, {{"shard_size", "2"}}},
      {"zero2", 3, 0, {}},
      {"zero2", 2, 2, {{"shard_size", "2"}}},
      {"zero3", 1, 0, {}},
      {"zero3", 2, 0, {}},
      {"zero3", 2, 0, {{"reduction", "native"}}},
      {"zero3", 2, 2, {{"shard_size", "2"}}},
      {"zero3", 1, 0, {{"compression", "fp16"}}},
      {"zero3", 2, 0, {{"precision", "bf16-true"}}},
      {"zero3", 2, 0, {{"precision", "bf16-mixed"}}},
      {"zero2", 1, 0, {{"precision", "bf16-true"}}},
      {"ddp", 1, 0, {{"compression", "topk:0.05+int8"}}},
      {"ddp", 1, 0, {{"compression", "ratio:0.1"}}},
      {"ddp", 1, 0, {{"compression", "powersgd:2"}}},
      {"zero1", 1, 0, {{"compression", "topk:0.2+ratio:0.05+bf16"}}},
      {"zero2", 2, 0, {{"compression", "powersgd:64"}}},
  };
  for (const auto& [strategy, micro_batches, shard_size, dist] : cases) {
    const std::string name = strategy + " x " + std::to_string(micro_batches) + (dist.empty() ? "" : ", " + dist[0].second);
    CAPTURE(name);
    check_calls(run_of(strategy, micro_batches, dist), {.strategy = strategy, .ranks = 4, .shard_size = shard_size}, 0);
  }
}

TEST_CASE("with groups the planned collectives are those of their first ranks, and of the others") {
  struct Case {
    std::string strategy;
    int64_t micro_batches;
    int ranks, groups_of;
    Options dist{};
    int shard_size = 0;
  };
  const std::vector<Case> cases = {
      {"ddp", 1, 4, 2},
      {"ddp", 2, 6, 3, {{"reduction", "native"}}},
      {"ddp", 1, 4, 1},
      {"ddp", 1, 4, 8},
      {"zero1", 1, 6, 2},
      {"zero2", 2, 4, 2},
      {"zero2", 1, 8, 4, {{"shard_size", "2"}}, 2},
      {"zero3", 2, 4, 2},
      {"zero3", 1, 8, 2, {{"shard_size", "4"}}, 4},
      {"ddp", 1, 4, 2, {{"precision", "bf16-true"}}},
      {"ddp", 1, 6, 2, {{"compression", "int8"}}},
      {"ddp", 1, 4, 4, {{"compression", "int8"}}},
      {"zero1", 1, 4, 1, {{"compression", "int8"}}},
      {"zero1", 1, 10, 4, {{"compression", "int8"}}},
      {"ddp", 2, 6, 2, {{"compression", "topk:0.01+ratio:0.1+int8"}}},
      {"zero2", 1, 6, 2, {{"compression", "ratio:0.02"}}},
      {"ddp", 1, 6, 2, {{"compression", "powersgd:3"}}},
  };
  for (const auto& c : cases) {
    const std::string name = c.strategy + " with " + std::to_string(c.ranks) + " in groups of " + std::to_string(c.groups_of) +
                             (c.dist.empty() ? "" : ", " + c.dist[0].second);
    CAPTURE(name);
    auto config = run_of(c.strategy, c.micro_batches, c.dist);
    config.dist.group_size = std::to_string(c.groups_of);
    const Placement placement{.strategy = c.strategy,
                              .ranks = c.ranks,
                              .shard_size = c.shard_size,
                              .group_size = group_size_of(config.dist, c.ranks, /*per_machine=*/1)};
    check_calls(config, placement, 0);
    check_calls(config, placement, 1);
  }
}

TEST_CASE("the size of groups") {
  CHECK(group_size_of({}, 8, 4) == 0);
  CHECK(group_size_of({.group_size = "2"}, 8, 4) == 2);
  CHECK(group_size_of({.group_size = "64"}, 8, 4) == 8);
  CHECK(group_size_of({.group_size = "auto"}, 8, 4) == 4);
  CHECK(group_size_of({.group_size = "auto"}, 8, 16) == 8);
  CHECK(group_size_of({.group_size = "auto"}, 9, 4) == 9);  // machines with 4, 4 and 1
  for (const char* wrong : {"0", "-1", "some", "99999999999", ""}) CHECK_THROWS_AS(group_size_of({.group_size = wrong}, 8, 4), Error);
  CHECK(Placement{.strategy = "ddp", .ranks = 7, .group_size = 3}.groups() == 3);
}

TEST_CASE("the calls of groups by hand") {
  StepWork work{.flops = 1, .parameters = {{.elements = 1024, .rows = 32}}};
  const auto calls_of = [&](int ranks, int group_size) {
    const auto calls = step_calls(work, {.strategy = "ddp", .ranks = ranks, .group_size = group_size});
    auto out = calls.buckets.at(0).then;
    out.insert(out.begin(), calls.buckets[0].exchange);
    return out;
  };
  const StepCall inside{.kind = Kind::Reduce, .bytes = 4096, .ranks = 4};
  const StepCall back{.kind = Kind::Distribute, .bytes = 4096, .ranks = 4};
  const auto of_leaders = [](Kind kind, int64_t bytes) {
    return StepCall{.kind = kind, .bytes = bytes, .ranks = 2, .stride = 4, .of_leaders = true};
  };
  CHECK((calls_of(8, 4) == std::vector<StepCall>{inside, of_leaders(Kind::AllReduce, 4096), back}));
  CHECK((calls_of(4, 4) == std::vector<StepCall>{{.kind = Kind::AllReduce, .bytes = 4096, .ranks = 4}}));
  work.dist.compression = "int8";  // 512 elements and two scales for each of two leaders
  CHECK((calls_of(8, 4) == std::vector<StepCall>{inside, of_leaders(Kind::AllToAll, 2 * 520), of_leaders(Kind::AllGather, 2 * 520), back}));
  work.dist.compression = "topk:0.01";  // 10 elements and their places
  CHECK((calls_of(8, 4) == std::vector<StepCall>{inside, of_leaders(Kind::AllGather, 2 * 80), back}));
  work.dist.compression = "powersgd:2";  // two factors of 32 by 2
  const auto factor = of_leaders(Kind::AllToAll, 256), sum = of_leaders(Kind::AllGather, 256);
  CHECK((calls_of(8, 4) == std::vector<StepCall>{inside, factor, sum, factor, sum, back}));
}

TEST_CASE("buckets of a hand-made step") {
  StepWork work{.flops = 1,
                .parameters = {{.elements = 1000, .ready = 1}, {.elements = 500, .ready = 0.5}, {.elements = 64, .ready = 0.25}}};
  work.dist.bucket_mib = 2000.0 / 1048576;  // the first bucket is closed at 250 bytes
  const auto calls = step_calls(work, {.strategy = "ddp", .ranks = 2});
  REQUIRE(calls.buckets.size() == 3);
  CHECK(calls.buckets[0].bytes == 64 * 2 * 4);  // 64 elements, padded to 64 for each rank
  CHECK(calls.buckets[1].bytes == 512 * 4);
  CHECK(calls.buckets[2].bytes == 1024 * 4);
  CHECK(calls.buckets[0].ready == 0.25);
  CHECK(calls.buckets[2].ready == 1);
  CHECK(calls.buckets[1].exchange == StepCall{.kind = Kind::AllToAll, .bytes = 2048, .ranks = 2});
  CHECK(calls.agreements == 2);
  CHECK(step_calls(work, {}).buckets.empty());
}

TEST_CASE("what is not modelled is refused by name") {
  StepWork work{.parameters = {{.elements = 64}}};
  CHECK(has(error_of([&] { step_calls(work, {.strategy = "zero4", .ranks = 2}); }).what(), "zero4"));
  CHECK(has(error_of([&] { step_calls(work, {.strategy = "zero1", .ranks = 6, .shard_size = 4}); }).what(), "4 shards of 6 ranks"));
  CHECK(has(error_of([&] { step_calls(work, {.strategy = "ddp", .ranks = 1}); }).what(), "ddp with 1 rank"));
  const auto refusal = [&](const Placement& placement) { return std::string(error_of([&] { step_calls(work, placement); }).what()); };
  work.dist.compression = "topk:0.01";
  CHECK(has(refusal({.strategy = "zero3", .ranks = 2}), "dist.compression=topk:0.01 is not possible with zero3"));
  CHECK(has(refusal({.strategy = "zero1", .ranks = 4, .shard_size = 2}), "shards among 2 of 4 ranks"));
  work.dist.compression = "bf16";
  CHECK(has(refusal({.strategy = "ddp", .ranks = 4, .group_size = 2}), "dist.compression=bf16"));
  work.dist = {.reduce = "micro_batch"};
  CHECK(has(refusal({.strategy = "ddp", .ranks = 4, .group_size = 2}), "dist.reduce=micro_batch is not possible with native sums"));
  work.dist = {.reduce_dtype = "bf16"};
  CHECK(has(refusal({.strategy = "ddp", .ranks = 4, .group_size = 2}), "dist.reduce_dtype=bf16 is not possible with native sums"));
  work.dist = {.reduction = "ordered"};
  CHECK(has(refusal({.strategy = "ddp", .ranks = 4, .group_size = 2}), "dist.reduction=ordered"));
  CHECK(has(refusal({.strategy = "ddp", .ranks = 4, .group_size = -2}), "-2 ranks in a group"));
  work.dist = {.offload = "optimizer"};
  CHECK(has(refusal({.strategy = "ddp", .ranks = 4}), "dist.offload=optimizer"));
  work.dist = {.shard_by = "layer"};
  CHECK(has(error_of([&] { step_calls(work, {.strategy = "zero1", .ranks = 2}); }).what(), "dist.shard_by=layer"));
}
