#include "testing.hpp"

#include "npu_train/core/log.hpp"
#include "npu_train/engine/run_precision.hpp"
#include "npu_train/engine/trainer.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

RunConfig run_in(const std::string& precision, const std::string& model, AmpOptions amp) {
  RunConfig config{.device = "cpu", .precision = precision};
  config.model.name = model;
  if (model == "vit") config.model.options = {{"depth", 3}, {"image_size", 32}, {"patch_size", 16}, {"dim", 48}, {"heads", 3}};
  if (model == "resnet18") config.model.options = {{"image_size", 32}};
  config.amp = std::move(amp);
  return config;
}

/// Returns "computes/parameters" of a layer.
std::string layer_in(const PrecisionPolicy& policy, const std::string& name) {
  for (const auto& l : policy.layers)
    if (l.name == name) return l.computes + "/" + l.parameters;
  return "missing";
}

std::string encoder(int i, const std::string& layer) { return "encoder.layers.encoder_layer_" + std::to_string(i) + "." + layer; }

std::string refusal(const std::string& precision, const std::string& model, const AmpOptions& amp) {
  const auto e = error_of([&] { precision_policy(run_in(precision, model, amp)); });
  CHECK(e.kind() == ErrorKind::Usage);
  return e.what();
}

}  // namespace

TEST_CASE("blocks in fp32, and exceptions from them") {
  const AmpOptions amp{.fp32_modules = {"encoder"}, .low_precision_modules = {"encoder.layers.*_1"}};
  const auto mixed = precision_policy(run_in("bf16-mixed", "vit", amp));
  CHECK(mixed.mode == "bf16-mixed");
  CHECK(layer_in(mixed, encoder(0, "mlp.0")) == "fp32/fp32");
  CHECK(layer_in(mixed, encoder(1, "mlp.0")) == "bf16/fp32");
  CHECK(layer_in(mixed, encoder(2, "mlp.0")) == "fp32/fp32");
  CHECK(layer_in(mixed, "heads.head") == "bf16/fp32");
  const auto low = precision_policy(run_in("bf16-true", "vit", amp));
  CHECK(layer_in(low, encoder(0, "mlp.0")) == "fp32/fp32");
  CHECK(layer_in(low, encoder(0, "ln_1")) == "fp32/fp32");
  CHECK(layer_in(low, encoder(1, "mlp.0")) == "bf16/bf16");
  CHECK(layer_in(low, encoder(1, "ln_1")) == "bf16/fp32");  // the default for a normalisation layer
  CHECK(layer_in(low, "heads.head") == "bf16/bf16");
}

TEST_CASE("normalisation layers that are named lose their fp32 parameters") {
  const auto p = precision_policy(run_in("bf16-true", "vit", {.low_precision_modules = {"encoder.layers.*.ln_1", "encoder.ln"}}));
  CHECK(layer_in(p, encoder(0, "ln_1")) == "bf16/bf16");
  CHECK(layer_in(p, encoder(0, "ln_2")) == "bf16/fp32");
  CHECK(layer_in(p, "encoder.ln") == "bf16/bf16");
  CHECK(has(refusal("bf16-true", "resnet18", {.low_precision_modules = {"layer1.0.bn1"}}), "running statistics"));
  CHECK(has(refusal("bf16-true", "vit", {.fp32_modules = {"encoder"}, .low_precision_modules = {encoder(0, "ln_1")}}), "computes in fp32"));
  CHECK(has(refusal("bf16-true", "vit", {.fp32_modules = {"head"}, .low_precision_modules = {"encoder.ln"}}), "'head'"));
}

TEST_CASE("operators in fp32: the layers show it, and operators that the model never calls are reported") {
  const auto p = precision_policy(run_in("bf16-mixed", "vit", {.fp32_ops = {"layer_norm", "gelu", "softmax"}}));
  CHECK(layer_in(p, "encoder.ln") == "fp32/fp32");
  CHECK((p.fp32_ops_not_met == std::vector<std::string>{"softmax"}));
  const auto resnet = precision_policy(run_in("bf16-mixed", "resnet18", {.fp32_ops = {"batch_norm", "conv2d"}}));  // kernels of our own
  CHECK(resnet.fp32_ops_not_met.empty());
  CHECK(layer_in(resnet, "layer2.0.bn1") == "fp32/fp32");
  CHECK(layer_in(resnet, "layer2.0.conv1") == "fp32/fp32");
  CHECK(layer_in(resnet, "fc") == "bf16/fp32");
}

TEST_CASE("classes of layers in fp32: every normalisation layer, and the softmax of an attention") {
  const auto vit = precision_policy(run_in("bf16-mixed", "vit", {.fp32_modules = {"LayerNorm", "Softmax", "BatchNorm", "head"}}));
  CHECK((vit.fp32_ops == std::vector<std::string>{"layer_norm", "softmax", "scaled_dot_product_attention", "batch_norm"}));
  CHECK((vit.fp32_ops_not_met == std::vector<std::string>{"BatchNorm"}));
  CHECK(layer_in(vit, encoder(1, "ln_1")) == "fp32/fp32");
  CHECK(layer_in(vit, encoder(1, "mlp.0")) == "bf16/fp32");
  CHECK(layer_in(vit, "heads.head") == "fp32/fp32");
  for (const char* name : {"BatchNorm", "BatchNorm2d"}) {
    const auto resnet = precision_policy(run_in("bf16-true", "resnet18", {.fp32_modules = {name}}));
    CHECK(layer_in(resnet, "layer2.0.bn1") == "fp32/fp32");
    CHECK(layer_in(resnet, "layer2.0.conv1") == "bf16/bf16");
    CHECK(resnet.fp32_ops_not_met.empty());
  }
  CHECK(has(refusal("bf16-mixed", "vit", {.fp32_modules = {"Layernorm"}}), "LayerNorm"));
  CHECK(precision_policy(run_in("32-true", "vit", {.fp32_modules = {"LayerNorm"}, .fp32_ops = {"gelu"}})).fp32_ops_not_met.empty());
}

TEST_CASE("exceptions that name nothing are refused, and those that change nothing are reported") {
  CHECK(has(refusal("bf16-mixed", "resnet18", {.low_precision_modules = {"layer9"}}), "layer4.1"));
  CHECK(
      has(refusal("bf16-mixed", "resnet18", {.fp32_modules = {"layer4"}, .low_precision_modules = {"layer4.0.conv1"}}), "neither a block"));
  CHECK(has(refusal("bf16-mixed", "resnet18", {.fp32_modules = {"layer4"}, .low_precision_modules = {"layer4"}}), "'layer4'"));
  std::string warned;
  const ScopedLogSink sink([&](LogLevel level, std::string_view text) {
    if (level == LogLevel::Warning) warned += text;
  });
  precision_policy(run_in("bf16-mixed", "resnet18", {.low_precision_modules = {"layer4"}}));
  CHECK(has(warned, "'layer4' computes in low precision anyway"));
  warned.clear();
  precision_policy(run_in("bf16-mixed", "vit", {.low_precision_modules = {"encoder.ln"}}));
  CHECK(has(warned, "'encoder.ln' has no effect"));
  warned.clear();
  precision_policy(run_in("32-true", "resnet18", {.fp32_modules = {"layer4"}, .low_precision_modules = {"layer4.1"}}));
  CHECK(warned.empty());
}

TEST_CASE("without a model there are no layers") {
  RunConfig config{.device = "cpu", .precision = "16-mixed"};
  const auto p = precision_policy(config);
  CHECK(p.layers.empty());
  CHECK(p.overflow_detector == "finite check");
  REQUIRE(p.loss_scale.has_value());
  CHECK(p.loss_scale->max_scale == 0x1p24);
}

TEST_CASE("a run trains with all of it, also with blocks computed again") {
  for (const char* precision : {"bf16-mixed", "bf16-true"})
    for (const char* plan : {"none", "blocks"}) {
      CAPTURE(std::string(precision) + plan);
      auto config = run_in(
          precision, "vit",
          {.fp32_modules = {"encoder"}, .low_precision_modules = {"encoder.layers.encoder_layer_1"}, .fp32_ops = {"gelu", "layer_norm"}});
      config.data = {.name = "generated", .options = {{"train_size", 16}, {"val_size", 8}, {"batch_size", 8}, {"num_workers", "0"}}};
      config.trainer = {.max_epochs = 1, .gradient_checkpointing = plan, .threads = 1};
      config.output.dir = "";
      const auto result = Trainer(config).fit();
      CHECK(std::isfinite(scalar_or(result.history.at(0).train, "loss", kNaN)));
    }
}
