#include "testing.hpp"

#include <ATen/Context.h>
#include <ATen/ops/rand.h>
#include <torch/nn.h>
#include <torch/nn/module.h>

#include <filesystem>

#include "engine/short_run.hpp"
#include "npu_train/engine/model_source.hpp"
#include "npu_train/engine/torch_checkpoint.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/engine/weights.hpp"
#include "npu_train/io/pickle.hpp"
#include "npu_train/io/pth_writer.hpp"
#include "npu_train/models/lora.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/train/checkpoint.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace fs = std::filesystem;

namespace {

PartConfig small_llama() {
  return part("llama_tiny", {{"context", 16}, {"dim", 16}, {"hidden", 24}, {"layers", 1}, {"heads", 2}, {"kv_heads", 1}});
}

PartConfig small_vit() { return short_run().model; }

at::Tensor named_tensor(const Model& model, const std::string& name) {
  for (const auto& [key, value] : named_state(*model.module))
    if (key == name) return value;
  FAIL("no tensor ", name);
  return {};
}

// Trains a run with averages that differ from the weights, and returns its folder.
std::string averaged_run(const TempDir& dir) {
  auto config = short_run();
  config.average = {.enabled = true, .decay = 0.9, .warmup = false};
  config.optimizer = {.name = "sgd", .options = {{"lr", 0.1}}};
  config.output.dir = dir.path().string();
  return Trainer(config).fit().run_dir;
}

}  // namespace

TEST_CASE("an adapter is merged once: W + alpha / rank B A") {
  const TempDir dir;
  const auto parts = builtin_parts();
  const auto base = make_model(small_llama(), parts, 3);
  save_safetensors(dir / "base.safetensors", named_state(*base.module));
  auto adapted = make_model(small_llama(), parts, 3);
  const LoraOptions lora{.rank = 2, .alpha = 6, .targets = {"q_proj"}};
  apply_lora(adapted, lora);
  torch::manual_seed(1);
  const auto a = named_tensor(adapted, "blocks.0.attention.q_proj.lora_A.weight"),
             b = named_tensor(adapted, "blocks.0.attention.q_proj.lora_B.weight");
  {
    const at::NoGradGuard no_grad;
    a.normal_(), b.normal_();
  }
  save_adapter((dir / "adapter").string(), named_state(*adapted.module), lora, "");
  auto source = ModelSource{.model = small_llama(), .weights = (dir / "base.safetensors").string()};
  source.model.options.set("lora.from", (dir / "adapter").string());
  const auto made = model_from(source, parts);
  const auto wanted = named_tensor(base, "blocks.0.attention.q_proj.weight") + 3 * b.matmul(a);
  CHECK(torch::allclose(named_tensor(made.model, "blocks.0.attention.q_proj.weight"), wanted, 1e-5, 1e-6));
  for (const auto& p : parameters_of(*made.model.module)) CHECK_FALSE(has(p.name, "lora_"));
}

TEST_CASE("weights that do not fill the model are refused, reported, or leave a fresh head") {
  const TempDir dir;
  const auto parts = builtin_parts();
  const auto file = (dir / "w.safetensors").string();
  auto with_classes = [&](int64_t classes) {
    auto out = small_vit();
    out.options.set("num_classes", ConfigNode(classes));
    return out;
  };
  save_safetensors(file, named_state(*make_model(with_classes(5), parts, 1).module));
  CHECK(model_from({.model = with_classes(5), .weights = file}, parts).report.complete());
  const auto error = error_of([&] { model_from({.model = with_classes(6), .weights = file}, parts); });
  CHECK(error.kind() == ErrorKind::Checkpoint);
  CHECK(has(error.what(), "for the head 'heads.head', which would be random"));
  CHECK(has(error.what(), "the network of these weights has model.num_classes=5"));
  CHECK(model_from({.model = with_classes(6), .weights = file, .fit = ModelSource::Fit::FreshHead}, parts).report.fresh_head ==
        "heads.head");
  auto deeper = with_classes(5);
  deeper.options.set("depth", ConfigNode(2));
  for (const auto fit : {ModelSource::Fit::Complete, ModelSource::Fit::FreshHead})
    CHECK(error_of([&] { model_from({.model = deeper, .weights = file, .fit = fit}, parts); }).kind() == ErrorKind::Checkpoint);
  CHECK_FALSE(model_from({.model = deeper, .weights = file, .fit = ModelSource::Fit::Reported}, parts).report.fits());
}

TEST_CASE("model.weights is followed, and contradictions are refused") {
  const TempDir dir;
  const auto parts = builtin_parts();
  const auto file = (dir / "w.safetensors").string();
  const auto saved = make_model(small_vit(), parts, 4);
  save_safetensors(file, named_state(*saved.module));
  auto named = small_vit();
  named.options.set("weights", file);
  CHECK(torch::equal(named_tensor(model_from({.model = named}, parts).model, "conv_proj.weight"), named_tensor(saved, "conv_proj.weight")));
  CHECK(has(error_of([&] { model_from({.model = named, .weights = "other.pth"}, parts); }).what(), "omit one of them"));
  CHECK(has(error_of([&] { model_from({}, parts); }).what(), "give either a checkpoint, or the name of a model"));
  CHECK(has(error_of([&] { model_from({.checkpoint = "x", .model = small_vit()}, parts); }).what(), "give either"));
  const auto hub = error_of([&] { model_from({.model = small_vit(), .weights = "timm://vit_tiny"}, parts); });
  CHECK(hub.kind() == ErrorKind::Usage);
  CHECK(has(hub.what(), "only weights of torchvision are fetched by name"));
  CHECK(has(hub.what(), "timm.create_model('vit_tiny', pretrained=True)"));
}

TEST_CASE("of two sets of weights in a file the averages are taken, as timm does, unless the other one is named") {
  const TempDir dir;
  const auto parts = builtin_parts();
  const auto plain = make_model(small_vit(), parts, 1), average = make_model(small_vit(), parts, 2);
  for (const auto& [weights, averages] : {std::pair("state_dict", "state_dict_ema"), std::pair("model", "model_ema")}) {
    const auto file = (dir / (std::string(averages) + ".pth")).string();
    auto dict = PthValue::dict();
    dict.set(weights, PthValue::dict(named_state(*plain.module)));
    NamedTensors wrapped;
    for (const auto& [name, value] : named_state(*average.module)) wrapped.emplace_back("module." + name, value);
    dict.set(averages, PthValue::dict(wrapped));
    save_pth(file, dict);
    const auto first = [&](ModelSource source) {
      source.weights = file;
      return named_tensor(model_from(source, parts).model, "conv_proj.weight");
    };
    auto with_key = [&](const char* key) {
      auto out = small_vit();
      out.options.set("weights_key", key);
      return out;
    };
    CHECK(torch::equal(first({.model = small_vit()}), named_tensor(average, "conv_proj.weight")));
    CHECK(torch::equal(first({.model = with_key("ema")}), named_tensor(average, "conv_proj.weight")));
    CHECK(torch::equal(first({.model = with_key("model")}), named_tensor(plain, "conv_proj.weight")));
    CHECK(torch::equal(first({.model = with_key("ema"), .set = WeightSet::Plain}), named_tensor(plain, "conv_proj.weight")));
    CHECK(has(read_weights(file).chosen, std::string("the averages '") + averages + "' are taken"));
  }
  save_safetensors(dir / "one.safetensors", named_state(*plain.module));
  const auto error = error_of([&] { read_weights((dir / "one.safetensors").string(), WeightSet::Ema); });
  CHECK(error.kind() == ErrorKind::Checkpoint);
  CHECK(has(error.what(), "has no averages"));
  CHECK(has(error_of([&] {
              model_from({.model = part("vit_tiny_cifar10", {{"weights_key", "emma"}})}, parts);
            }).what(),
            "auto, ema, model"));
}

TEST_CASE("of a run with averages these are taken everywhere, and the accuracy next to weights is theirs") {
  const TempDir dir;
  const auto run = averaged_run(dir);
  const auto state = load_checkpoint(run + "/checkpoints/last");
  const std::string name = "conv_proj.weight";
  const auto plain = state.at("model").tensors.at(name), average = state.at("ema").tensors.at("average/" + name);
  REQUIRE_FALSE(torch::equal(plain, average));
  const auto parts = builtin_parts();
  CHECK(torch::equal(named_tensor(model_from({.checkpoint = run}, parts).model, name), average));
  CHECK(torch::equal(named_tensor(model_from({.checkpoint = run, .set = WeightSet::Plain}, parts).model, name), plain));
  auto begun = short_run();
  begun.model.options.set("weights", run);
  Trainer tuned(begun);
  CHECK(torch::equal(named_tensor(tuned.model(), name), average));
  begun.model.options.set("weights_key", "model");
  Trainer again(begun);
  CHECK(torch::equal(named_tensor(again.model(), name), plain));

  const auto ema = run + "/checkpoints/last/ema.safetensors";
  const auto of_file = read_weights(ema);
  CHECK((of_file.averages && of_file.checkpoint == fs::canonical(run + "/checkpoints/last").string()));
  CHECK(torch::equal(named_tensor(model_from({.model = small_vit(), .weights = ema}, parts).model, name), average));
  CHECK(has(error_of([&] { read_weights(ema, WeightSet::Plain); }).what(), "has only the averages; hint: name the folder"));
  fs::copy_file(ema, dir / "copy.safetensors");
  const auto alone = error_of([&] { read_weights((dir / "copy.safetensors").string()); });
  CHECK(alone.kind() == ErrorKind::Checkpoint);
  CHECK(has(alone.what(), "has the averages of a checkpoint, without the rest of it; hint: name the checkpoint's folder"));

  const auto torch_file = [&](WeightSet set) {
    const auto written = save_torch_checkpoint(run, (dir / "torch").string(), {}, parts, set);
    return load_pth(written.files[0]);
  };
  const auto weight_of = [&](const PthFile& file) {
    for (const auto& [key, value] : file.tensors)
      if (key == "model_state_dict." + name) return value;
    return at::Tensor();
  };
  CHECK(torch::equal(weight_of(torch_file(WeightSet::Auto)), average));
  CHECK(torch::equal(weight_of(torch_file(WeightSet::Plain)), plain));
}

namespace {

const PartConfig kViT{.name = "vit_tiny_cifar10", .options = {{"depth", 1}}};

std::vector<at::Tensor> weights(const Model& model) {
  std::vector<at::Tensor> out;
  for (const auto& p : model.module->parameters()) out.push_back(p.detach().clone());
  return out;
}

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size() || a.empty()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!a[i].equal(b[i])) return false;
  return true;
}

}  // namespace

TEST_CASE("the seed alone decides the initial weights: those of libtorch's generator with that seed") {
  const auto parts = builtin_parts();
  at::manual_seed(7);
  const auto expected = weights(parts.models.make(kViT, "model"));
  const auto next = at::rand({4});

  at::manual_seed(1234);
  at::rand({100});
  CHECK(equal(weights(make_model(kViT, parts, 7)), expected));
  CHECK(at::rand({4}).equal(next));  // the default generator has advanced as if it had drawn the weights
  CHECK_FALSE(equal(weights(make_model(kViT, parts, 8)), expected));
}

TEST_CASE("a name that no model has is refused") {
  CHECK(testing::error_of([] { make_model({.name = "vit_tny"}, builtin_parts(), 0); }).kind() == ErrorKind::Usage);
}
