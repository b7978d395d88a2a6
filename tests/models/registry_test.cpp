#include "testing.hpp"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/isfinite.h>
#include <torch/nn/module.h>

#include "models/image_classifiers.hpp"
#include "npu_train/models/registry.hpp"
#include "npu_train/nn/module_state.hpp"
#include "reference/formula.hpp"

using namespace npu_train;

namespace {

ModelRegistry builtin() {
  ModelRegistry registry("model");
  add_builtin_models(registry);
  return registry;
}

Model make(const std::string& name, ConfigNode options) {
  return builtin().make({.name = name, .options = std::move(options), .mark = {}}, "model");
}

}  // namespace

TEST_CASE("the built-in names") {
  CHECK(builtin().names() ==
        std::vector<std::string>{
            "bert",     "bert_base",  "bert_tiny",      "clip",      "clip_tiny", "clip_vit_b32",  "glm",      "glm_6b",
            "glm_tiny", "gpt2",       "gpt2_124m",      "gpt2_tiny", "internvl",  "internvl_tiny", "llama",    "llama_tiny",
            "qwen2",    "qwen2_tiny", "resnet101",      "resnet152", "resnet18",  "resnet34",      "resnet50", "torchscript",
            "vit",      "vit_b16",    "vit_b16_ascend", "vit_b32",   "vit_l16",   "vit_small",     "vit_tiny", "vit_tiny_cifar10"});
}

TEST_CASE("options by key") {
  const Model r = make(
      "resnet18", {{"num_classes", 10}, {"stem", "small"}, {"image_size", 32}, {"weights", "a.safetensors"}, {"fused_kernels", "false"}});
  CHECK(r.name == "resnet18");
  CHECK(r.num_classes == 10);
  CHECK(r.weights == "a.safetensors");
  CHECK(r.weights_strict);
  CHECK_FALSE(make("vit_tiny_cifar10", {{"weights_strict", false}}).weights_strict);
  CHECK(parameters_of(*r.module).find("conv1.weight")->value.size(2) == 3);
  // Accepts the option as a YAML file has it, without quotes.
  CHECK(builtin().make({.name = "resnet18", .options = parse_yaml("{fused_kernels: false}", "test"), .mark = {}}, "model").num_classes ==
        1000);

  // A preset has its own defaults, each of which can be changed.
  const Model v = make("vit_tiny_cifar10", {{"depth", 2}, {"qkv", "split"}});
  CHECK(v.num_classes == 10);
  CHECK(v.inputs.front().str() == "Float [batch, 3, 32, 32]");
  CHECK(v.blocks.size() == 4);
  CHECK(parameters_of(*v.module).find("encoder.pos_embedding")->value.size(1) == 65);
  const at::Tensor head = parameters_of(*make("vit_b16_ascend", {{"dim", 48}, {"depth", 1}}).module).find("heads.head.weight")->value;
  const double bound = std::sqrt(6.0 / (48 + 1000));  // limit of Xavier uniform
  CHECK(head.abs().max().item<double>() <= bound);
  CHECK(head.std().item<double>() == doctest::Approx(bound / std::sqrt(3.0)).epsilon(0.02));
  const Model own =
      make("vit", {{"dim", 48}, {"depth", 1}, {"heads", 2}, {"mlp_dim", 64}, {"num_classes", 3}, {"image_size", 32}, {"channels", 1}});
  CHECK(parameters_of(*own.module).find("encoder.layers.encoder_layer_0.mlp.0.weight")->value.sizes() == at::IntArrayRef({64, 48}));
}

TEST_CASE("errors are named") {
  const auto says = [](const std::string& name, ConfigNode options, const std::string& word) {
    const auto error = testing::error_of([&] { make(name, options); });
    return error.kind() == ErrorKind::Usage && std::string(error.what()).find(word) != std::string::npos;
  };
  CHECK(says("resnet5", {}, "resnet50"));
  CHECK(says("resnet18", {{"stem", "tiny"}}, "imagenet"));
  CHECK(says("resnet18", {{"num_clases", 3}}, "num_classes"));
  CHECK(says("vit_b16", {{"embed_dim", 3}}, "dim"));
  CHECK(says("vit_tiny", {{"depth", 0}}, "between 1"));
}

TEST_CASE("every built-in network makes a step: finite logits, a gradient for each parameter") {
  const auto models = builtin();
  int networks = 0;
  for (const auto& name : models.names()) {
    if (name == "resnet152" || name == "vit_l16") continue;   // the same code as others, only larger
    if (!testing::classifies_images(models, name)) continue;  // gpt2_test.cpp etc. have token inputs; torchscript_test.cpp reads a file
    ++networks;
    ConfigNode options{{"num_classes", 4}, {"image_size", 32}};
    if (name.starts_with("vit")) options.set("depth", 2);
    const Model model = make(name, options);
    const at::Tensor logits = model.forward(testing::formula_images("x", 2, 32));
    CHECK(logits.sizes() == at::IntArrayRef({2, 4}));
    at::cross_entropy_loss(logits, testing::formula_labels(2, 4, 0)).backward();
    for (const auto& p : parameters_of(*model.module)) {
      REQUIRE_MESSAGE(p.value.grad().defined(), name, " ", p.name);
      CHECK_MESSAGE(at::isfinite(p.value.grad()).all().item<bool>(), name, " ", p.name);
    }
  }
  CHECK(networks == 11);
}
