#include "testing.hpp"

#include <cmath>
#include <numeric>

#include "npu_train/core/log.hpp"
#include "npu_train/tools/memory/predict_memory.hpp"

using namespace npu_train;
using namespace npu_train::testing;

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
  CHECK(of(MemoryUse::Masters) < 2 * of(MemoryUse::Parameters) + 4096);                                    // fp32 of bf16; norms have none
  CHECK(of(MemoryUse::Optimizer) == doctest::Approx(2.0 * (of(MemoryUse::Masters) + 0.0)).epsilon(0.05));  // two moments each
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
