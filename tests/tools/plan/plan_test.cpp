#include "testing.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "npu_train/engine/trainer.hpp"
#include "npu_train/tools/memory/memory_prediction.hpp"
#include "npu_train/tools/plan/plan.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using doctest::Approx;

namespace {

StepWork work_of_four_blocks() {
  StepWork out{.model = "four", .flops = 1e12, .batch = 8, .state_bytes = 8 * 4e6};
  for (size_t i = 0; i < 4; ++i) {
    out.parameters.push_back({.elements = 1'000'000, .ready = 1 - 0.25 * static_cast<double>(i), .unit = i + 1});
    out.units.push_back(0.25);
  }
  out.between_devices = true;
  out.dist.bucket_mib = 2;
  return out;
}

PlanOptions many_ranks() {
  return {.ranks = {64, 1, 8}, .cluster = {.link = {.bytes_per_second = 10e9, .latency = 5e-6}}, .rates = {.flops = 1e14, .memory = 1e30}};
}

// Returns the memory of a rank: 16 GB that no strategy divides, and 48 GB of which zero1, zero2 and zero3 divide ever more.
int64_t memory_of(const Placement& p) {
  const int64_t gb = 1'000'000'000;
  const int64_t divided = p.strategy == "zero3" ? 48 : p.strategy == "zero2" ? 32 : p.strategy == "zero1" ? 24 : 0;
  return 16 * gb + (48 - divided) * gb + divided * gb / p.shards();
}

RunConfig small_vit() {
  RunConfig c{.device = "cpu", .precision = "32-true"};
  c.model = {.name = "vit_tiny", .options = {{"depth", 4}, {"image_size", 32}, {"patch_size", 4}, {"dim", 384}, {"heads", 6}}};
  c.data = {.name = "generated", .options = {{"train_size", 64}, {"val_size", 8}, {"batch_size", 8}, {"num_workers", "0"}}};
  c.optimizer = {.name = "adamw", .options = {{"lr", 0.001}}};
  c.trainer = {.max_epochs = 1, .threads = 1};
  c.output.dir = "";
  return c;
}

}  // namespace

TEST_CASE("each number of ranks has its best strategy among those that fit") {
  auto options = many_ranks();
  const auto free = plan_steps(work_of_four_blocks(), options, memory_of);
  REQUIRE(free.steps.size() == 1 + 4 + 4);
  CHECK(free.steps[0].placement.strategy == "single");
  CHECK(free.steps[0].efficiency == Approx(1));
  for (const int ranks : {1, 8, 64}) {
    const auto* best = free.best(ranks);
    REQUIRE(best != nullptr);
    for (const auto& s : free.steps) {
      if (s.placement.ranks != ranks) continue;
      CHECK(s.time.seconds >= best->time.seconds * 0.999);
      CHECK(s.samples_per_second == Approx(8 * ranks / s.time.seconds));
      CHECK(s.efficiency == Approx(s.samples_per_second / ranks / free.steps[0].samples_per_second));
      CHECK(s.efficiency <= 1.0001);
      CHECK(s.memory == memory_of(s.placement));
      CHECK(s.is_best == (&s == best));
    }
  }
  CHECK(free.best(8)->placement.strategy == "ddp");

  options.memory = 45'000'000'000;  // ddp and one rank need 64, zero1 with 8 ranks 43, zero2 36, zero3 22
  const auto limited = plan_steps(work_of_four_blocks(), options, memory_of);
  CHECK(limited.best(1) == nullptr);
  CHECK(limited.notes == std::vector<std::string>{"no strategy fits with 1 rank"});
  CHECK_FALSE(limited.steps[1].fits);
  CHECK(limited.best(8)->placement.strategy != "ddp");
  options.memory = 25'000'000'000;
  CHECK(plan_steps(work_of_four_blocks(), options, memory_of).best(8)->placement == Placement{.strategy = "zero3", .ranks = 8});
  options.memory = 20'000'000'000;  // groups of 8 ranks need 22, all 64 ranks 16.75
  const auto least = plan_steps(work_of_four_blocks(), options, memory_of);
  CHECK(least.best(8) == nullptr);
  CHECK(least.best(64)->placement == Placement{.strategy = "zero3", .ranks = 64});
}

TEST_CASE("shards within a machine where the link between machines is slow") {
  auto options = many_ranks();
  options.ranks = {64};
  options.cluster = {.link = {.bytes_per_second = 1e9}, .local = {.bytes_per_second = 300e9}, .per_machine = 8};
  int64_t placed = 0;
  for (const auto& s : plan_steps(work_of_four_blocks(), options).steps) {
    if (s.placement.strategy != "zero3") continue;
    CHECK(s.placement.shard_size == 8);
    ++placed;
  }
  CHECK(placed == 1);
}

TEST_CASE("groups of ranks where many messages are slow") {
  auto work = work_of_four_blocks();
  work.between_devices = false;
  work.dist.reduction = "native";
  auto options = many_ranks();
  options.ranks = {8, 64};
  options.cluster = {
      .link = {.bytes_per_second = 10e9, .latency = 1e-3}, .local = {.bytes_per_second = 300e9, .latency = 1e-6}, .per_machine = 16};
  const auto plan = plan_steps(work, options);
  for (const auto& s : plan.steps) {
    CAPTURE(s.placement.strategy);
    CHECK(s.placement.group_size == (s.placement.ranks == 64 ? 16 : 0));  // 8 are on one machine
    // No other size is better.
    for (const int size : {0, 8, 16}) {
      auto other = s.placement;
      other.group_size = size;
      if (s.placement.ranks == 64) CHECK(step_time(work, other, options.cluster, plan.rates).seconds >= 0.999 * s.time.seconds);
    }
  }
  CHECK(plan.notes ==
        std::vector<std::string>{
            "groups of ranks (dist.group_size) add natively: their sums agree with those of one process except for rounding"});
  CHECK(has(to_text(plan), "best with 64 ranks: ddp, groups of 16"));
  CHECK(to_json(plan).at("steps", "plan").items("steps")[4].at("group_size", "step").number("group_size") == 16);

  // Groups are excluded by options that contradict them; a configured size is kept.
  for (const auto& dist :
       std::vector<DistOptions>{{.reduction = "ordered"}, {.reduce = "micro_batch"}, {.reduce_dtype = "bf16"}, {.compression = "fp16"}}) {
    work.dist = dist;
    const auto without = plan_steps(work, options);
    for (const auto& s : without.steps) CHECK(s.placement.group_size == 0);
    CHECK(without.notes.size() == (dist.compression == "none" ? 0 : 1));
  }
  for (const auto& [given, size] : std::vector<std::pair<std::string, int>>{{"4", 4}, {"auto", 16}}) {
    work.dist = {.group_size = given};
    const auto with = plan_steps(work, options);
    for (const auto& s : with.steps) CHECK(s.placement.group_size == std::min(size, s.placement.ranks));
    CHECK(with.notes.empty());
  }
  work.dist = {.compression = "topk:0.01+int8"};
  work.divides_parameters = false;
  const auto compressed = plan_steps(work, options);
  CHECK(compressed.best(64)->placement.group_size == 16);
  CHECK(has(compressed.notes.back(), "dist.compression=topk:0.01+int8: bytes and calls are modelled, the time of compressing is not"));
}

TEST_CASE("a chip whose machines are two rings: numbers of ranks and sizes that it does not connect") {
  auto work = work_of_four_blocks();
  auto options = many_ranks();
  options.cluster.per_machine = 8;
  options.cluster.local = {.bytes_per_second = 100e9, .latency = 2e-6};
  options.ranks = {4, 8, 16};  // 4 is also a candidate for shards and groups
  const auto sizes = [&] {
    std::set<int> out;
    for (const auto& step : plan_steps(work, options, memory_of).steps)
      for (const int size : {step.placement.shard_size, step.placement.group_size}) out.insert(size);
    return out;
  };
  options.cluster.link.latency = 1e-2;  // makes groups and shards within a machine best
  CHECK(sizes().contains(8));
  work.in_rings = true;
  CHECK(sizes().contains(8));
  CHECK_FALSE(sizes().contains(4));
  for (const int ranks : {3, 6, 12}) {
    options.ranks = {8, ranks};
    const auto e = error_of([&] { plan_steps(work, options); });
    CHECK((e.kind() == ErrorKind::Usage));
    CHECK(has(e.what(),
              std::to_string(ranks) + " ranks, " + std::to_string(std::min(ranks, 8)) + " on a machine: the chip connects 1, 2, 4 or 8"));
  }
  options.cluster.per_machine = 1;  // one NPU of each machine
  CHECK(plan_steps(work, options).best(12) != nullptr);
  options = many_ranks();
  options.cluster.per_machine = 8;
  options.cluster.local = {.bytes_per_second = 100e9, .latency = 2e-6};
  options.ranks = {8};
  work.dist.group_size = "4";
  CHECK(has(error_of([&] { plan_steps(work, options); }).what(), "8 ranks in groups of 4, 8 on a machine"));
}

TEST_CASE("the speed of one rank is given, measured or fitted") {
  auto options = many_ranks();
  options.ranks = {1};
  CHECK(plan_steps(work_of_four_blocks(), options).steps[0].time.seconds == Approx(0.24));
  options.one_rank_seconds = 0.5;
  CHECK(plan_steps(work_of_four_blocks(), options).steps[0].time.seconds == Approx(0.5));
  options.measured = {{.seconds = 0.75}};
  const auto fitted = plan_steps(work_of_four_blocks(), options);
  CHECK(fitted.steps[0].time.seconds == Approx(0.75).epsilon(0.01));
  CHECK(fitted.steps[0].beyond == "");
  CHECK(fitted.fit->steps.size() == 1);
}

TEST_CASE("errors are named") {
  auto options = many_ranks();
  options.cluster = {};
  CHECK(has(error_of([&] { plan_steps(work_of_four_blocks(), options); }).what(), "--link"));
  options.ranks = {};
  CHECK(has(error_of([&] { plan_steps(work_of_four_blocks(), options); }).what(), "neither numbers of ranks nor measured steps"));
  options.ranks = {0};
  CHECK(has(error_of([&] { plan_steps(work_of_four_blocks(), options); }).what(), "0 ranks; allowed: 1 to 65536"));
}

TEST_CASE("a configured model gives its parameters, FLOPs and units, and the memory of npu_tool memory") {
  const auto config = small_vit();
  const auto work = step_work(config);
  Trainer trainer(config);
  int64_t elements = 0, planned = 0, in_units = 0;
  for (const auto& p : trainer.task().parameters()) elements += p.value.numel();
  for (const auto& p : work.parameters) {
    planned += p.elements;
    if (p.unit > 0) in_units += p.elements;
    CHECK(p.ready > 0);
    CHECK(p.ready <= 1);
  }
  CHECK(planned == elements);
  CHECK(in_units > planned / 2);
  CHECK(work.parameters.back().ready < 0.1);  // the head, whose gradient comes first
  CHECK(work.parameters.front().ready == 1);
  CHECK(work.batch == 8);
  CHECK(work.state_bytes == Approx(8.0 * static_cast<double>(elements)).epsilon(0.01));
  CHECK(work.units.size() == trainer.model().blocks.size());
  CHECK_FALSE(work.between_devices);

  const PlanOptions options{.ranks = {2, 4, 8}, .cluster = {.link = {.bytes_per_second = 1e9}}, .rates = {.flops = 1e11}};
  for (const auto& s : plan_run(config, options).steps) {
    CAPTURE(s.placement.strategy);
    CAPTURE(s.placement.ranks);
    CAPTURE(s.placement.shard_size);
    auto same = config;
    same.trainer.strategy = s.placement.strategy;
    if (s.placement.shard_size > 0) same.dist.shard_size = std::to_string(s.placement.shard_size);
    if (s.placement.group_size > 0) same.dist.group_size = std::to_string(s.placement.group_size);
    const auto exact = static_cast<double>(predict_memory(same, {.variants = false, .ranks = s.placement.ranks}).peak.reserved);
    // Groups of shards send their sums in smaller parts.
    CHECK(std::abs(static_cast<double>(s.memory) / exact - 1) < (s.placement.shard_size > 0 ? 0.2 : 0.1));
  }
}

TEST_CASE("a plan as text and as JSON") {
  auto options = many_ranks();
  options.memory = 25'000'000'000;
  options.measured = {
      {.placement = {.strategy = "ddp", .ranks = 2}, .link = {.bytes_per_second = 10e9}, .link_text = "10GB/s", .seconds = 0.3}};
  const auto plan = plan_steps(work_of_four_blocks(), options, memory_of);
  const auto text = to_text(plan, 80);
  for (const char* words : {"four, batch 8 on each rank", "best", "too large", "extrapolation beyond the measured steps: more than 2 ranks",
                            "2 ranks, 10GB/s, ddp", "no strategy fits with 1 rank"})
    CHECK(has(text, words));
  for (size_t begin = 0; begin < text.size();) {
    const auto end = text.find('\n', begin);
    if (text.substr(begin, end - begin).starts_with("  ") || text[begin] == '6') CHECK(end - begin <= 80);
    begin = end + 1;
  }
  const auto json = to_json(plan);
  const auto& steps = json.at("steps", "plan").items("steps");
  REQUIRE(steps.size() == plan.steps.size());
  CHECK(steps[1].at("strategy", "step").text("strategy") == "ddp");
  CHECK(steps[1].at("step_s", "step").number("step_s") == plan.steps[1].time.seconds);
  CHECK(steps[1].at("extrapolation", "step").text("extrapolation") == "more than 2 ranks");
  CHECK(json.at("fit", "plan").at("steps", "fit").items("steps").size() == 1);
}
