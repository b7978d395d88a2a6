#include "testing.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include <ATen/ops/zeros.h>

#include "npu_train/engine/trainer.hpp"
#include "npu_train/tools/plan/plan.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

using Kind = StepCall::Kind;

struct Ended final : Collective {
  bool done() override { return true; }
  void wait() override {}
};

// What the engine calls, by kind, bytes and number of ranks.
struct Recorded {
  std::map<std::tuple<Kind, int64_t, int>, int> calls;
  int64_t agreements = 0;
};

// One of several ranks that all do the same.
class RecordingGroup final : public ProcessGroup {
 public:
  RecordingGroup(int size, std::shared_ptr<Recorded> seen) : size_(size), seen_(std::move(seen)) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks) override {
    return std::make_shared<RecordingGroup>(static_cast<int>(ranks.size()), seen_);
  }
  std::unique_ptr<Collective> all_to_all(const at::Tensor& out, const at::Tensor& in) override {
    note(Kind::AllToAll, in);
    out.copy_(in.narrow(0, 0, in.numel() / size_).repeat({size_}));
    return std::make_unique<Ended>();
  }
  std::unique_ptr<Collective> all_reduce(const at::Tensor& tensor) override {
    note(Kind::AllReduce, tensor);
    return std::make_unique<Ended>();
  }
  std::unique_ptr<Collective> all_gather(const at::Tensor& out, const at::Tensor& in) override {
    note(Kind::AllGather, out);
    out.copy_(in.repeat({size_}));
    return std::make_unique<Ended>();
  }
  std::vector<std::string> gather(const std::string& /*call*/, const std::string& own) override {
    constexpr size_t kInline = 488;
    seen_->agreements += own.size() > kInline ? 2 : 1;
    return std::vector<std::string>(static_cast<size_t>(size_), own);
  }
  void broadcast(const at::Tensor& /*tensor*/) override {}
  void main_first(const std::function<void()>& work) override { work(); }
  void abandon() noexcept override {}

 private:
  void note(Kind kind, const at::Tensor& t) {
    if (size_ > 1) ++seen_->calls[{kind, static_cast<int64_t>(t.nbytes()), size_}];
  }
  int size_;
  std::shared_ptr<Recorded> seen_;
};

RunConfig run_of(const std::string& strategy, int64_t micro_batches, const std::vector<std::pair<std::string, std::string>>& dist) {
  RunConfig c{.device = "cpu", .precision = "32-true"};
  c.model = {.name = "vit_tiny", .options = {{"depth", 3}, {"image_size", 32}, {"patch_size", 8}, {"dim", 48}, {"heads", 3}}};
  c.data = {.name = "generated", .options = {{"train_size", 64}, {"val_size", 8}, {"batch_size", 4}, {"num_workers", "0"}}};
  c.optimizer = {.name = "adamw", .options = {{"lr", 0.001}}};
  c.trainer = {.max_epochs = 1, .threads = 1};
  c.trainer.accumulate_grad_batches = micro_batches;
  c.trainer.strategy = strategy;
  c.output.dir = "";
  auto node = to_node(c.dist);
  node.set("bucket_mib", ConfigNode(0.05));
  for (const auto& [key, value] : dist)
    if (key == "precision")
      c.precision = value;
    else
      node.set(key, ConfigNode(value));
  c.dist = bind<DistOptions>(node, "dist");
  return c;
}

Recorded recorded(const RunConfig& config, int ranks) {
  auto seen = std::make_shared<Recorded>();
  auto parts = builtin_parts();
  parts.process_group = [&](const DistOptions& /*dist*/) { return std::make_shared<RecordingGroup>(ranks, seen); };
  Trainer trainer(config, parts);
  trainer.setup();
  const Batch batch(at::zeros({4, 3, 32, 32}), at::zeros({4}, at::kLong));
  const std::vector<Batch> window(static_cast<size_t>(config.trainer.accumulate_grad_batches), batch);
  trainer.train_step(window);
  *seen = {};
  trainer.train_step(window);
  return *seen;
}

}  // namespace

TEST_CASE("the planned collectives are those that the engine calls") {
  using Dist = std::vector<std::pair<std::string, std::string>>;
  const std::vector<std::tuple<std::string, int64_t, int, Dist>> cases = {
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
  };
  for (const auto& [strategy, micro_batches, shard_size, dist] : cases) {
    const std::string name = strategy + " x " + std::to_string(micro_batches) + (dist.empty() ? "" : ", " + dist[0].second);
    CAPTURE(name);
    const auto config = run_of(strategy, micro_batches, dist);
    const auto work = step_work(config);
    const Placement placement{.strategy = strategy, .ranks = 4, .shard_size = shard_size};
    const auto calls = step_calls(work, placement);
    const auto seen = recorded(config, 4);
    std::map<std::tuple<Kind, int64_t, int>, int> planned;
    for (const auto& call : all_calls(work, placement, calls)) ++planned[{call.kind, call.bytes, call.ranks}];
    CHECK(planned.size() == seen.calls.size());
    for (const auto& [call, count] : seen.calls) {
      CAPTURE(static_cast<int>(std::get<0>(call)));
      CAPTURE(std::get<1>(call));
      CAPTURE(std::get<2>(call));
      CHECK(planned[call] == count);
    }
    CHECK(calls.agreements == seen.agreements);
  }
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
  work.dist.compression = "topk:0.01";
  CHECK(has(error_of([&] { step_calls(work, {.strategy = "ddp", .ranks = 2}); }).what(), "topk:0.01"));
  work.dist = {.shard_by = "layer"};
  CHECK(has(error_of([&] { step_calls(work, {.strategy = "zero1", .ranks = 2}); }).what(), "dist.shard_by=layer"));
}
