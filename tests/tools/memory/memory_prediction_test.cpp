#include "testing.hpp"

#include "npu_train/tools/memory/memory_prediction.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Returns a trace of a batch, activations of `each` bytes a sample and of `weights` bytes, workspace, and a gradient of `weights` bytes.
MemoryTrace trace_of(int64_t batch, int64_t each, int64_t weights) {
  MemoryTrace t;
  t.layers = {"conv"};
  const int forward = static_cast<int>(Phase::Forward), backward = static_cast<int>(Phase::Backward);
  t.blocks = {{batch * 100, MemoryUse::Batch, -1},
              {batch * each, MemoryUse::Activations, 0},
              {weights, MemoryUse::Activations, 0},
              {batch * each, MemoryUse::Workspace, 0},
              {weights, MemoryUse::Gradients, 0}};
  t.events = {{0, false, -1, -1},      {1, false, forward, 0}, {2, false, forward, 0}, {3, false, backward, 0},
              {4, false, backward, 0}, {3, true, backward, 0}, {1, true, backward, 0}, {2, true, backward, 0}};
  return t;
}

ResidentMemory resident(int64_t bytes) {
  ResidentMemory out;
  out.tensors.emplace_back(MemoryUse::Parameters, bytes);
  return out;
}

}  // namespace

TEST_CASE("gaps of a caching allocator, planned from the blocks that are live") {
  constexpr int64_t kOneMiB = int64_t{1} << 20;
  ResidentMemory resident;
  resident.tensors = {{MemoryUse::Parameters, 3 * kOneMiB}};
  MemoryTrace trace;
  trace.blocks = {{12 * kOneMiB, MemoryUse::Activations}, {12 * kOneMiB, MemoryUse::Workspace}};
  trace.events = {{0, false}, {1, false}, {1, true}};
  CHECK(planned_gaps(resident, trace, 0).reserved == 20 * kOneMiB);  // one segment, for the small block
  CHECK(planned_gaps(resident, trace, 0).gaps == 17 * kOneMiB);
  CHECK(planned_gaps(resident, trace, 2).reserved == 32 * kOneMiB);  // one 12 MiB block fits into it, the other needs its own
  CHECK(planned_gaps(resident, trace, 2).gaps == 5 * kOneMiB);
  CHECK(planned_gaps(resident, trace, 2).largest == 5 * kOneMiB);
  CHECK(planned_gaps(resident, trace, 3).gaps == 17 * kOneMiB);
  CHECK(planned_gaps(resident, trace, 3).largest == 12 * kOneMiB);
}

TEST_CASE("each block is a straight line over the batch") {
  const MemoryModel model(resident(1000), trace_of(2, 5000, 700), 2, trace_of(3, 5000, 700), 3);
  CHECK(model.matched());
  const auto peak = model.peak(50);
  CHECK(peak.allocated == 1000 + 50 * 100 + 2 * 50 * 5000 + 2 * 700);
  CHECK(peak.phase == "backward");
  CHECK(peak.layer == "conv");
  CHECK(peak.uses[static_cast<size_t>(MemoryUse::Activations)] == 50 * 5000);
  CHECK(peak.uses[static_cast<size_t>(MemoryUse::Fixed)] == 700);  // independent of the batch
  REQUIRE(peak.activations.size() == 1);
  CHECK(peak.activations[0] == std::pair<std::string, int64_t>{"conv", 50 * 5000});
  CHECK(model.largest_batch(peak.allocated, true) == 50);
  CHECK(model.fits(50, peak.allocated, true));
  CHECK_FALSE(model.fits(51, peak.allocated, true));
}

TEST_CASE("the caching allocator takes complete segments") {
  // Blocks of 3 MiB share segments of 20 MiB, those of 30 MiB have their own; small ones share 2 MiB.
  const MemoryModel model(resident(1000), trace_of(2, kMiB, 700), 2, trace_of(3, kMiB, 700), 3);
  CHECK(model.peak(3).reserved == 2 * kMiB + 20 * kMiB);
  CHECK(model.peak(30).reserved == 2 * kMiB + 30 * kMiB + 30 * kMiB);
  CHECK_FALSE(model.fits(30, 61 * kMiB));
  CHECK(model.fits(30, 62 * kMiB));
  CHECK(model.largest_batch(62 * kMiB) == 30);
}

TEST_CASE("different sequences of blocks: the phases are extrapolated, and this is reported") {
  auto other = trace_of(3, 5000, 700);
  other.blocks.push_back({12, MemoryUse::Workspace, -1});
  other.events.push_back({5, false, static_cast<int>(Phase::Optimizer), -1});
  const MemoryModel model(resident(1000), trace_of(2, 5000, 700), 2, other, 3);
  CHECK_FALSE(model.matched());
  CHECK(model.peak(50).allocated == 1000 + 50 * 100 + 2 * 50 * 5000 + 2 * 700);
  CHECK(model.peak(50).reserved > model.peak(50).allocated);
  CHECK(model.largest_batch(model.peak(50).reserved) == 50);
}

TEST_CASE("batches that wait on the device, and memory that is added") {
  MemoryModel model(resident(1000), trace_of(2, 5000, 700), 2, trace_of(3, 5000, 700), 3);
  const auto before = model.peak(10).allocated;
  model.add_resident(MemoryUse::Optimizer, 64);
  CHECK(model.peak(10).allocated == before + 64);
  CHECK(error_of([&] { MemoryModel(resident(1), trace_of(3, 1, 1), 3, trace_of(3, 1, 1), 3); }).kind() == ErrorKind::Usage);
}

TEST_CASE("round sizes of batches") {
  CHECK(multiple_below(37, 8) == 32);
  CHECK(multiple_below(7, 8) == 0);
  CHECK(power_below(37) == 32);
  CHECK(power_below(64) == 64);
  CHECK(power_below(1) == 1);
  CHECK(power_below(0) == 0);
}

TEST_CASE("text, JSON and page of a prediction") {
  const MemoryModel model(resident(kMiB), trace_of(2, 500'000, 70'000), 2, trace_of(3, 500'000, 70'000), 3);
  MemoryPrediction p{.model = "net", .device = "sim_npu:0", .precision = "32-true", .checkpointing = "none", .optimizer = "sgd"};
  p.batch = 100;
  p.small_batch = 2, p.large_batch = 3;
  p.peak = model.peak(100);
  p.hbm = 64 * kMiB;
  p.largest = model.largest_batch(p.hbm);
  p.variants = {
      {.precision = "32-true", .checkpointing = "none", .allocated = 5, .reserved = 6, .largest = 7, .problem = "", .chosen = true},
      {.precision = "16-true", .checkpointing = "none", .problem = "no <units>", .chosen = false}};
  CHECK_FALSE(p.fits());
  const auto text = to_text(p);
  for (const char* part : {"net with sgd, 32-true, checkpointing none, batch 100\n", "in the backward at conv", "does not fit: needs",
                           "this configuration", "no <units>"})
    CHECK_MESSAGE(has(text, part), text);
  const auto json = to_json(p);
  CHECK(json.at("largest_batch", "").integer("") == p.largest);
  CHECK(json.at("fits", "").boolean("") == false);
  const auto page = to_html(p);
  CHECK(has(page, "no &lt;units&gt;"));
  CHECK(has(page, "Memory of tensors during one step"));
}
