#include "testing.hpp"

#include <cmath>
#include <numeric>

#include "npu_train/core/log.hpp"
#include "npu_train/tools/memory/memory_prediction.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Returns a trace of five blocks: the batch, activations of `each` bytes per sample, activations of `weights` bytes, workspace, and a
// gradient of `weights` bytes.
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

namespace {

RunConfig predicted_run(const std::string& model, const std::string& precision = "32-true", const std::string& checkpointing = "none") {
  RunConfig c{.device = "sim_npu", .precision = precision};
  c.sim_npu.unsupported_ops = "ignore";
  c.model = {.name = model, .options = {}};
  if (model == "resnet18") c.model.options = {{"stem", "imagenet"}};
  if (model == "vit_tiny") c.model.options = {{"depth", 3}, {"image_size", 32}, {"patch_size", 4}};
  c.data = {.name = "generated", .options = {{"train_size", 64}, {"val_size", 32}, {"batch_size", 16}, {"num_workers", "0"}}};
  c.optimizer = {.name = "adamw", .options = {{"lr", 0.001}}};
  c.trainer = {.max_epochs = 1, .gradient_checkpointing = checkpointing, .threads = 1};
  c.output.dir = "";
  return c;
}

}  // namespace

TEST_CASE("the predicted peak is what training takes, in batches that were not run before") {
  for (const std::string model : {"resnet18", "vit_tiny"})
    for (const std::string precision : {"32-true", "bf16-mixed"})
      for (const std::string checkpointing : {"none", "blocks"}) {
        CAPTURE(model);
        CAPTURE(precision);
        CAPTURE(checkpointing);
        for (const auto& row : check_memory(predicted_run(model, precision, checkpointing), {5, 16})) {
          CAPTURE(row.batch);
          CAPTURE(row.predicted);
          CAPTURE(row.measured);
          CHECK(std::abs(row.error()) < 0.02);
        }
      }
}

TEST_CASE("masters, averages, loss scaling and accumulation are predicted too") {
  auto config = predicted_run("vit_tiny", "bf16-true");
  config.average.enabled = true;
  config.trainer.accumulate_grad_batches = 3;
  for (const auto& row : check_memory(config, {7})) CHECK(std::abs(row.error()) < 0.02);
  for (const auto& row : check_memory(predicted_run("vit_tiny", "16-mixed"), {7})) CHECK(std::abs(row.error()) < 0.02);
}

TEST_CASE("transforms on the device are predicted too") {
  auto config = predicted_run("vit_tiny");
  config.data.options = parse_yaml(
      "{train_size: 60, val_size: 20, batch_size: 8, num_workers: 0, augment_on: device, mixup_alpha: 0.4, cutmix_alpha: 0.7, "
      "train_transforms: [{name: random_crop, size: 32, padding: 4}, horizontal_flip, {name: random_rotation, degrees: 30}, "
      "{name: color_jitter, hue: 0.4}, gaussian_blur, {name: random_erasing, p: 0.7}, normalize]}",
      "test");
  const auto rows = check_memory(config, {6, 16});
  CHECK(rows.size() == 2);
  for (const auto& row : rows) CHECK(std::abs(row.error()) < 0.02);
}

TEST_CASE("components, layers and the place of the peak") {
  const auto p = predict_memory(predicted_run("vit_tiny", "bf16-true"), {.hbm = int64_t{256} << 20, .variants = false});
  CHECK(p.matched);
  CHECK(p.batch == 16);
  CHECK(p.precision == "bf16-true");
  CHECK(p.peak.phase == "backward");
  const auto of = [&](MemoryUse use) { return p.peak.uses[static_cast<size_t>(use)]; };
  CHECK(of(MemoryUse::Masters) > 0);
  // masters are fp32 copies of bf16 parameters; the parameters of norms have none
  CHECK(of(MemoryUse::Masters) < 2 * of(MemoryUse::Parameters) + 4096);
  CHECK(of(MemoryUse::Optimizer) == doctest::Approx(2.0 * (of(MemoryUse::Masters) + 0.0)).epsilon(0.05));  // two moments of each
  CHECK(of(MemoryUse::Activations) > 0);
  CHECK(std::accumulate(p.peak.uses.begin(), p.peak.uses.end(), int64_t{0}) == p.peak.allocated);
  CHECK(p.peak.reserved >= p.peak.allocated);
  int64_t kept = 0;
  bool has_block = false;
  for (const auto& [layer, bytes] : p.peak.activations) kept += bytes, has_block |= layer.starts_with("encoder.layers.encoder_layer_1");
  CHECK(has_block);
  CHECK(kept >= of(MemoryUse::Activations));  // at the peak some are freed
  CHECK(p.largest > 16);
  CHECK(p.fits());
  const auto text = to_text(p);
  for (const char* part : {"master weights", "activations by layer", "in the backward", "fits: needs", "as a multiple of 8"})
    CHECK_MESSAGE(has(text, part), text);
  CHECK(has(to_html(p), "Activations kept for the backward"));
  CHECK(to_json(p).at("largest_batch", "").integer("") == p.largest);
}

TEST_CASE("a data set of one sample is enough") {
  auto config = predicted_run("vit_tiny");
  config.data.options.set("train_size", ConfigNode(int64_t{1}));
  config.data.options.set("batch_size", ConfigNode(int64_t{1}));
  CHECK(measure_memory(config).peak(9).allocated == measure_memory(predicted_run("vit_tiny")).peak(9).allocated);
}

TEST_CASE("the largest batch fits, and one more does not") {
  const auto model = measure_memory(predicted_run("vit_tiny"));
  const auto limit = model.peak(37).allocated;
  CHECK(model.largest_batch(limit, /*exact=*/true) == 37);
  CHECK(model.largest_batch(limit - 1, /*exact=*/true) == 36);
  const auto largest = model.largest_batch(limit);
  CHECK(largest <= 37);
  CHECK(largest > 20);
  CHECK(model.fits(largest, limit));
  CHECK(model.largest_batch(1000) == 0);
}

TEST_CASE("other precisions and checkpointing: a row each; what cannot be says why") {
  auto config = predicted_run("vit_tiny");
  const auto p = predict_memory(config, {.hbm = int64_t{1} << 30});
  CHECK(p.variants.size() == 10);
  const auto row = [&](const std::string& precision, const std::string& checkpointing) {
    for (const auto& v : p.variants)
      if (v.precision == precision && v.checkpointing == checkpointing) return v;
    FAIL("no row");
    return MemoryPrediction::Variant{};
  };
  CHECK(row("32-true", "none").chosen);
  CHECK(row("32-true", "blocks").allocated < row("32-true", "none").allocated);
  CHECK(row("32-true", "blocks").largest > row("32-true", "none").largest);
  CHECK(row("bf16-mixed", "none").largest > row("32-true", "none").largest);
  for (const auto& v : p.variants) CHECK(v.problem == "");
  config.amp.low_precision_modules = {"no_such_block"};
  CHECK(error_of([&] { predict_memory(config); }).kind() == ErrorKind::Usage);
}

TEST_CASE("overrides under which a training fits: smaller micro-batches, then checkpointing, then nothing") {
  auto config = predicted_run("vit_tiny");  // batch 16
  const auto pieces = fitting_overrides(config, measure_memory(config).peak(16).reserved - 1);
  CHECK_MESSAGE(pieces.starts_with("data.batch_size="), pieces);
  CHECK(fitting_overrides(config, int64_t{1} << 20).empty());

  auto wide = config;  // the images of a window alone exceed the memory of the device
  wide.model.options = {{"depth", 1}, {"dim", 32}, {"heads", 2}, {"image_size", 32}, {"patch_size", 8}};
  wide.data.options.set("train_size", ConfigNode(int64_t{512}));
  wide.data.options.set("batch_size", ConfigNode(int64_t{512}));
  const auto late = fitting_overrides(wide, int64_t{4} << 20);
  CHECK_MESSAGE(late.starts_with("trainer.on_oom=retry data.batch_size="), late);

  config.model.options = {{"depth", 6}, {"dim", 96}, {"image_size", 32}, {"patch_size", 2}};  // one sample outweighs the parameters
  auto in_two = config;
  in_two.trainer.accumulate_grad_batches = 2;
  const auto limit = measure_memory(in_two).peak(1).allocated - 1;  // too little for even one sample
  in_two.trainer.gradient_checkpointing = "blocks";
  REQUIRE(measure_memory(in_two).fits(1, limit));
  const auto both = fitting_overrides(config, limit);
  CHECK_MESSAGE(has(both, "trainer.gradient_checkpointing=blocks data.batch_size="), both);
}

TEST_CASE("without a card, no largest batch is reported") {
  const auto json = to_json(predict_memory(predicted_run("vit_tiny"), {.variants = false}));
  for (const char* key : {"hbm", "fits", "largest_batch"}) CHECK(json.at(key, "").is_null());
}
