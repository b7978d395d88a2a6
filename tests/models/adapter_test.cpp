#include "testing.hpp"

#include "npu_train/models/lora.hpp"

#include <torch/nn.h>

#include <fstream>
#include <map>

#include "npu_train/io/json.hpp"
#include "npu_train/io/pth_writer.hpp"
#include "npu_train/nn/init.hpp"
#include "npu_train/nn/layers.hpp"
#include "npu_train/nn/module_state.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;
using npu_train::testing::TempDir;

namespace {

constexpr int64_t kDim = 4;

std::shared_ptr<torch::nn::Module> child(torch::nn::Module& parent, const std::string& name) {
  return parent.register_module(name, std::make_shared<torch::nn::Module>());
}

void linear(torch::nn::Module& parent, const std::string& name, int64_t in, int64_t out) {
  parent.register_module(name, std::make_shared<Linear>(in, out));
}

// Returns a module with the parameters of a GPT-2 of two blocks; it computes nothing.
std::shared_ptr<torch::nn::Module> gpt2_like() {
  auto net = std::make_shared<torch::nn::Module>();
  child(*net, "token_embedding")->register_parameter("weight", torch::empty({7, kDim}));
  child(*net, "position_embedding")->register_parameter("weight", torch::empty({5, kDim}));
  auto blocks = child(*net, "blocks");
  for (const char* number : {"0", "1"}) {
    auto block = child(*blocks, number);
    block->register_module("ln_1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kDim})));
    auto attention = child(*block, "attention"), mlp = child(*block, "mlp");
    linear(*attention, "qkv", kDim, 3 * kDim);
    linear(*attention, "proj", kDim, kDim);
    linear(*mlp, "fc1", kDim, 4 * kDim);
    linear(*mlp, "fc2", 4 * kDim, kDim);
  }
  net->register_module("ln", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kDim})));
  for (const auto& p : net->parameters()) init::normal_(p, 1);
  return net;
}

std::map<std::string, at::Tensor> by_name(const NamedTensors& tensors) { return {tensors.begin(), tensors.end()}; }

void randomise_adapters(const torch::nn::Module& module) {
  for (const auto& p : parameters_of(module))
    if (has(p.name, "lora_")) init::normal_(p.value, 1);
}

Json config_in(const TempDir& dir) { return load_json(dir / "adapter_config.json"); }

std::vector<std::string> words(const Json& list) {
  std::vector<std::string> out;
  for (const auto& item : list.items("test")) out.push_back(item.text("test"));
  return out;
}

constexpr const char* kBlock = "base_model.model.transformer.h.1.";

}  // namespace

TEST_CASE("an adapter has the names of Hugging Face's network, and comes back bit for bit") {
  TempDir dir;
  torch::manual_seed(1);
  auto net = gpt2_like();
  const auto report = apply_lora(*net, {.rank = 2, .alpha = 3, .dropout = 0.1, .targets = {"qkv", "blocks.1.mlp"}, .also_train = {"ln"}});
  randomise_adapters(*net);
  save_adapter(dir.path(), named_state(*net), report.options, "openai-community/gpt2");

  const auto written = by_name(load_safetensors(dir / "adapter_model.safetensors"));
  CHECK(written.size() == 2 * 4 + 2);
  CHECK(torch::equal(written.at(std::string(kBlock) + "attn.c_attn.lora_B.weight"),
                     by_name(named_state(*net)).at("blocks.1.attention.qkv.lora_B.weight")));
  CHECK(written.at(std::string(kBlock) + "mlp.c_fc.lora_A.weight").sizes() ==
        at::IntArrayRef({2, kDim}));  // not transposed, unlike the weight of its layer
  CHECK(written.count("base_model.model.transformer.ln_f.weight") == 1);
  const auto config = config_in(dir);
  CHECK(config.at("peft_type", "").text("") == "LORA");
  CHECK(config.at("task_type", "").text("") == "CAUSAL_LM");
  CHECK(config.at("r", "").integer("") == 2);
  CHECK(config.at("lora_alpha", "").integer("") == 3);
  CHECK(config.at("lora_dropout", "").number("") == 0.1);
  CHECK(config.at("bias", "").text("") == "none");
  CHECK(config.at("fan_in_fan_out", "").boolean(""));
  CHECK(config.at("base_model_name_or_path", "").text("") == "openai-community/gpt2");
  CHECK(words(config.at("modules_to_save", "")) == std::vector<std::string>{"transformer.ln_f"});
  // The names are complete, because a short one such as c_fc would also match a layer of block 0, which has no adapter.
  CHECK(words(config.at("target_modules", "")) == std::vector<std::string>{"transformer.h.0.attn.c_attn", "transformer.h.1.attn.c_attn",
                                                                           "transformer.h.1.mlp.c_fc", "transformer.h.1.mlp.c_proj"});

  auto other = gpt2_like();
  const auto again = apply_lora(*other, {.from = dir.path().string()});
  CHECK(again.layers == report.layers);
  CHECK(again.options.rank == 2);
  CHECK(again.options.alpha == 3);
  CHECK(again.options.dropout == 0);  // the value of the new training
  CHECK(again.trained == report.trained);
  const auto expected = by_name(named_state(*net));
  int64_t trained = 0;
  for (const auto& [name, value] : named_state(*other)) {
    if (!has(name, "lora_") && !name.starts_with("ln.")) continue;
    CHECK_MESSAGE(torch::equal(value, expected.at(name)), name);
    trained += value.numel();
  }
  CHECK(trained == report.trained);
}

TEST_CASE("short names are written if they select these layers and no others") {
  TempDir dir;
  auto net = gpt2_like();
  const auto report = apply_lora(*net, {.targets = {"qkv", "fc1"}});
  save_adapter(dir.path(), named_state(*net), report.options);
  CHECK(words(config_in(dir).at("target_modules", "")) == std::vector<std::string>{"c_attn", "c_fc"});
  CHECK(config_in(dir).at("modules_to_save", "").is_null());
  CHECK(config_in(dir).at("r", "").integer("") == 8);
  CHECK(config_in(dir).at("lora_alpha", "").integer("") == 8);
}

TEST_CASE("a saved layer is transposed as its network has it, both ways") {
  TempDir dir;
  auto net = gpt2_like();
  const auto report = apply_lora(*net, {.targets = {"qkv"}, .also_train = {"blocks.0.mlp.fc1"}});
  save_adapter(dir.path(), named_state(*net), report.options);
  const auto written = by_name(load_safetensors(dir / "adapter_model.safetensors"));
  const auto ours = by_name(named_state(*net)).at("blocks.0.mlp.fc1.weight");
  CHECK(torch::equal(written.at("base_model.model.transformer.h.0.mlp.c_fc.weight"), ours.t()));
  auto other = gpt2_like();
  apply_lora(*other, {.from = dir.path().string()});
  CHECK(torch::equal(by_name(named_state(*other)).at("blocks.0.mlp.fc1.weight"), ours));
}

TEST_CASE("a network of one's own keeps its names, and PyTorch's file is read too") {
  TempDir dir;
  torch::nn::Module net, other;
  for (auto* module : {&net, &other}) linear(*module, "0", 3, 2);
  const auto report = apply_lora(net, {.rank = 1, .targets = {"0"}});
  randomise_adapters(net);
  save_adapter(dir.path(), named_state(net), report.options);
  const auto written = load_safetensors(dir / "adapter_model.safetensors");
  CHECK(by_name(written).count("base_model.model.0.lora_A.weight") == 1);
  CHECK(config_in(dir).at("task_type", "").is_null());
  CHECK_FALSE(config_in(dir).at("fan_in_fan_out", "").boolean(""));
  std::filesystem::remove(dir / "adapter_model.safetensors");
  save_pth(dir / "adapter_model.bin", PthValue::dict(written));
  apply_lora(other, {.from = dir.path().string()});
  CHECK(torch::equal(by_name(named_state(other)).at("0.lora_B.weight"), by_name(named_state(net)).at("0.lora_B.weight")));
}

TEST_CASE("options that differ from those of the adapter are refused") {
  TempDir dir;
  auto net = gpt2_like();
  const auto report = apply_lora(*net, {.rank = 2, .alpha = 3, .targets = {"qkv"}});
  save_adapter(dir.path(), named_state(*net), report.options);
  const auto from = dir.path().string();
  auto other = gpt2_like();
  CHECK(has(error_of([&] { apply_lora(*other, {.rank = 4, .from = from}); }).what(), "lora.rank is 4, that of the adapter in"));
  CHECK(has(error_of([&] { apply_lora(*other, {.alpha = 4, .from = from}); }).what(), "lora.alpha is 4"));
  CHECK(has(error_of([&] { apply_lora(*other, {.targets = {"blocks.0"}, .from = from}); }).what(), "selects 1 of the 2 layers"));
  CHECK(parameters_of(*other).size() == parameters_of(*gpt2_like()).size());
  CHECK(apply_lora(*other, {.rank = 2, .alpha = 3, .targets = {"qkv"}, .from = from}).layers.size() == 2);
}

TEST_CASE("the scale of rank-stabilised adapters is alpha / sqrt(rank)") {
  TempDir dir;
  auto net = gpt2_like();
  const auto report = apply_lora(*net, {.rank = 4, .alpha = 3, .targets = {"qkv"}});
  save_adapter(dir.path(), named_state(*net), report.options);
  auto config = config_in(dir);
  config.set("use_rslora", true);
  save_json(dir / "adapter_config.json", config);
  auto other = gpt2_like();
  CHECK(apply_lora(*other, {.from = dir.path().string()}).options.alpha == 6);  // 6 / 4 = 3 / sqrt(4)
}

TEST_CASE("damaged, foreign and hostile adapters are refused, and the model stays as it is") {
  TempDir dir;
  auto net = gpt2_like();
  const auto report = apply_lora(*net, {.rank = 2, .targets = {"qkv"}});
  const auto state = named_state(*net);
  const auto names = parameters_of(*gpt2_like()).size();
  const auto refused = [&](const std::string& words) {
    auto fresh = gpt2_like();
    const auto error = error_of([&] { apply_lora(*fresh, {.from = dir.path().string()}); });
    CHECK_MESSAGE(((error.kind() == ErrorKind::Checkpoint || error.kind() == ErrorKind::Data)), error.what());
    CHECK_MESSAGE(has(error.what(), words), error.what());
    CHECK(parameters_of(*fresh).size() == names);
    for (const auto& p : parameters_of(*fresh)) CHECK(p.value.requires_grad());
  };
  const auto with_config = [&](const char* key, Json value) {
    save_adapter(dir.path(), state, report.options);
    auto config = config_in(dir);
    config.set(key, std::move(value));
    save_json(dir / "adapter_config.json", config);
  };
  const auto with_tensors = [&](auto&& change) {
    save_adapter(dir.path(), state, report.options);
    auto tensors = load_safetensors(dir / "adapter_model.safetensors");
    change(tensors);
    save_safetensors(dir / "adapter_model.safetensors", tensors);
  };
  refused("not a folder with an adapter_config.json");
  with_config("peft_type", "IA3"), refused("peft_type is IA3; allowed: LORA");
  with_config("r", 3), refused("this model needs numbers of [3, 4]");
  with_config("r", 0), refused("r is 0");
  with_config("r", "8"), refused("r");
  with_config("lora_alpha", Json("nan")), refused("lora_alpha nan");
  with_config("lora_dropout", 1.0), refused("lora_dropout 1");
  with_config("use_dora", true), refused("use_dora is true");
  with_config("bias", "all"), refused("bias is \"all\"");
  with_config("rank_pattern", Json::object({{"c_attn", 4}})), refused("rank_pattern");
  with_config("init_lora_weights", "pissa"), refused("init_lora_weights is pissa");
  with_tensors([](NamedTensors& t) { t.pop_back(); }), refused("one of lora_A and lora_B is missing");
  with_tensors([](NamedTensors& t) { t.clear(); }), refused("there are no tensors of an adapter");
  with_tensors([](NamedTensors& t) { t[0].second = torch::zeros({2, kDim + 1}); }), refused("this model needs numbers of [2, 4]");
  with_tensors([](NamedTensors& t) { t[0].second = t[0].second.to(torch::kLong); }), refused("is Long");
  with_tensors([](NamedTensors& t) { t[0].first = "base_model.model.transformer.h.9.attn.c_attn.lora_A.weight"; }),
      refused("of no linear layer");
  // The file has a separate head, whereas our head is the token embedding.
  with_tensors([](NamedTensors& t) {
    t.emplace_back("base_model.model.lm_head.weight", torch::zeros({7, kDim}));
  }),
      refused("of no parameter");
  with_tensors([](NamedTensors& t) { t.emplace_back("base_model.model.lm_head.bias", torch::zeros({1})); }), refused("of no parameter");
  with_tensors([](NamedTensors& t) { t.emplace_back("blocks.0.attention.qkv.lora_A.weight", t[0].second); }), refused("is a second tensor");
  save_adapter(dir.path(), state, report.options);
  std::filesystem::resize_file(dir / "adapter_model.safetensors", 100);
  refused("adapter_model.safetensors");
  std::filesystem::remove(dir / "adapter_model.safetensors");
  refused("neither adapter_model.safetensors nor adapter_model.bin");
  for (const auto& text : {std::string("{"), std::string(5000, '['), std::string("[]"), std::string()}) {
    std::ofstream(dir / "adapter_config.json") << text;
    refused("adapter_config.json");
  }
}

TEST_CASE("what PEFT cannot store is refused") {
  TempDir dir;
  auto net = gpt2_like();
  CHECK(has(error_of([&] { save_adapter(dir.path(), named_state(*net), {.rank = 2, .alpha = 2}); }).what(), "no adapters"));
  const auto report = apply_lora(*net, {.targets = {"qkv"}, .also_train = {"qkv.bias"}});
  const auto error = error_of([&] { save_adapter(dir.path(), named_state(*net), report.options); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(has(error.what(), "its layer has an adapter"));
  CHECK_FALSE(std::filesystem::exists(dir / "adapter_config.json"));
}
