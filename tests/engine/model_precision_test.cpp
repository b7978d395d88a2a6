#include "testing.hpp"

#include "engine/short_run.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/engine/model_precision.hpp"
#include "npu_train/engine/model_source.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/nn/module_state.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("the device and the precision of a run") {
  const auto config = short_run("bf16-mixed");
  CHECK(run_device(config).is_cpu());
  CHECK(precision_options(config).mode == "bf16-mixed");
}

TEST_CASE("blocks that stay in fp32 keep their parameters, the others do not") {
  auto config = short_run();
  auto model = make_model(config.model, builtin_parts(), 1);
  const auto precision = make_precision({.mode = "bf16-true"}, Device{});
  const auto parameters = parameters_of(*model.module);
  const auto modules = amp_modules({.fp32_modules = {"head"}});
  const auto kept = fp32_parameters(model, modules, {"encoder.ln.weight"}, parameters, *precision);
  const auto holds = [&](const char* name) { return std::find(kept.begin(), kept.end(), name) != kept.end(); };
  CHECK(holds("encoder.ln.weight"));
  CHECK(holds("heads.head.weight"));
  CHECK_FALSE(holds("conv_proj.weight"));
}

TEST_CASE("a head of several layers stays in fp32 with all of them, and computes next to low-precision blocks") {
  auto config = short_run();
  config.model = {.name = "bert_tiny", .options = {}};
  config.model.options.set("num_classes", ConfigNode(3));
  auto model = make_model(config.model, builtin_parts(), 1);
  const auto precision = make_precision({.mode = "bf16-true"}, Device{});
  const auto parameters = parameters_of(*model.module);
  const auto modules = amp_modules({.fp32_modules = {"head"}});
  keep_in_fp32(model, modules, Device{}, *precision);
  const auto kept = fp32_parameters(model, modules, norm_parameters_of(*model.module), parameters, *precision);
  for (const auto& p : parameters)
    if (std::find(kept.begin(), kept.end(), p.name) == kept.end()) p.value.set_data(p.value.to(at::kBFloat16));
  CHECK((parameters.find("pooler.weight")->value.scalar_type() == at::kFloat));
  CHECK((parameters.find("classifier.bias")->value.scalar_type() == at::kFloat));
  CHECK((parameters.find("token_embedding.weight")->value.scalar_type() == at::kBFloat16));
  CHECK((model.forward(at::ones({2, 5}, at::kLong)).scalar_type() == at::kFloat));
}

TEST_CASE("lists that contradict each other, or name no block, are refused") {
  CHECK(has(error_of([] { amp_modules({.fp32_modules = {"head"}, .low_precision_modules = {"head"}}); }).what(), "head"));
  auto model = make_model(short_run().model, builtin_parts(), 1);
  const auto precision = make_precision({.mode = "bf16-mixed"}, Device{});
  CHECK(error_of([&] { keep_in_fp32(model, amp_modules({.fp32_modules = {"no_such_block"}}), Device{}, *precision); }).kind() ==
        ErrorKind::Usage);
}

TEST_CASE(
    "weights that only autocast reads: of linear layers and convolutions, no norms, biases or embeddings, not tied, outside of fp32 "
    "blocks") {
  const auto names_of = [](const std::string& model, const std::vector<std::string>& fp32_modules, const std::vector<std::string>& fp32_ops,
                           const std::string& precision = "bf16-mixed", const std::string& cpu = "native") {
    auto config = short_run(precision);
    config.cpu_low_precision = cpu;
    config.amp.fp32_modules = fp32_modules;
    config.amp.fp32_ops = fp32_ops;
    config.model = {.name = model, .options = {}};
    if (model == "bert_tiny") config.model.options.set("num_classes", ConfigNode(3));
    const auto made = make_model(config.model, builtin_parts(), 1);
    const auto mode = make_precision(precision_options(config), Device{});
    return autocast_weights(made, config, Device{}, parameters_of(*made.module), *mode);
  };
  using Names = std::vector<std::string>;
  const auto holds = [](const Names& names, const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); };

  const auto all = names_of("bert_tiny", {}, {});
  CHECK(holds(all, "pooler.weight"));
  CHECK(holds(all, "classifier.weight"));
  for (const auto& name : all) {
    CAPTURE(name);
    CHECK(name.ends_with(".weight"));
    CHECK(name.find("embedding") == std::string::npos);
    CHECK(name.find("norm") == std::string::npos);
  }
  // The head's block also runs the pooler, which is not part of the head's module.
  const auto without_head = names_of("bert_tiny", {"head"}, {});
  CHECK_FALSE(holds(without_head, "pooler.weight"));
  CHECK_FALSE(holds(without_head, "classifier.weight"));
  CHECK(without_head.size() == all.size() - 2);
  // GPT-2 has no weight for its head, which uses that of the embedding.
  for (const auto& name : names_of("gpt2_tiny", {}, {})) CHECK(name.find("blocks.") == 0);

  CHECK(names_of("bert_tiny", {}, {"linear"}).empty());
  CHECK(names_of("bert_tiny", {}, {"softmax"}) == all);
  CHECK(names_of("bert_tiny", {}, {}, "bf16-mixed", "emulated").empty());
  CHECK(names_of("bert_tiny", {}, {}, "32-true").empty());
  CHECK(names_of("bert_tiny", {}, {}, "bf16-true").empty());
}

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
