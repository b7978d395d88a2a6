#include "testing.hpp"

#include <fstream>

#include "npu_train/core/log.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/engine/weights.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;
using npu_train::testing::TempDir;

namespace {

// A config.json as transformers 4 and 5 write it.
constexpr const char* kLlama31 =
    R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_attention_heads": 4, "num_key_value_heads": 2,
  "max_position_embeddings": 64, "rms_norm_eps": 1e-05, "hidden_act": "silu", "rope_theta": 500000.0, "head_dim": 16, "hidden_size": 64,
  "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8192}})";
constexpr const char* kLlama = R"({"model_type": "llama", "num_attention_heads": 4, "max_position_embeddings": 64, "rms_norm_eps": 1e-05,
  "hidden_size": 64, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})";

class Folder {
 public:
  explicit Folder(const std::string& config) { std::ofstream(dir_ / "config.json") << config; }

  PartConfig complete(const std::string& model) { return with_weights_options(part_of(model), builtin_parts(), file()); }
  void has_options(const std::string& model, const std::vector<std::pair<std::string, std::string>>& options) {
    const auto part = complete(model);
    for (const auto& [key, value] : options) {
      const auto* section = key.starts_with("rope_scaling.") ? part.options.find("rope_scaling") : &part.options;
      REQUIRE(section != nullptr);
      const auto* node = section->find(key.substr(key.find('.') + 1));
      REQUIRE_MESSAGE(node != nullptr, key);
      CHECK_MESSAGE(node->scalar() == value, key);
    }
  }
  void differs(const std::string& model, const std::vector<std::string>& words) {
    const auto error = error_of([&] { complete(model); });
    CHECK(error.kind() == ErrorKind::Checkpoint);
    for (const auto& text : words) CHECK_MESSAGE(has(error.what(), text), error.what());
  }
  std::string file() const { return (dir_ / "model.safetensors").string(); }  // the file need not exist

 private:
  static PartConfig part_of(const std::string& model) {
    return model.empty() ? PartConfig{} : bind_config(parse_yaml("model: " + model, "t")).model;
  }

  TempDir dir_;
};

}  // namespace

TEST_CASE("options that are open have the values of config.json, and each one that is set otherwise is named with its value") {
  Folder llama(kLlama31);
  llama.has_options("llama_tiny", {{"rope_theta", "500000"}, {"rope_scaling.type", "llama3"}, {"rope_scaling.factor", "8"}});
  llama.has_options("{name: llama_tiny, rope_theta: 500000, context: 32, rope_scaling: {type: llama3}}",
                    {{"context", "32"}});  // a shorter context than the file's is allowed
  llama.has_options("llama", {{"heads", "4"}, {"kv_heads", "2"}, {"dim", "64"}, {"context", "64"}, {"norm_eps", "1e-05"}});
  llama.differs("{name: llama_tiny, heads: 2, rope_theta: 10000, context: 128, norm_eps: 1.0e-6, rope_scaling: {type: none}}",
                {"num_attention_heads is 4, model.heads is 2", "rope_theta is 500000, model.rope_theta is 10000",
                 "max_position_embeddings is 64, model.context is 128", "rms_norm_eps is 1e-05, model.norm_eps is 1e-06",
                 "rope_type is llama3, model.rope_scaling.type is none", "model.heads=4", "model.rope_scaling.type=llama3"});
  llama.differs("{name: llama_tiny, kv_heads: 0}", {"num_key_value_heads is 2, model.kv_heads is 0"});
  llama.differs("{name: llama_tiny, rope_scaling: {type: llama3, factor: 32}}", {"factor is 8, model.rope_scaling.factor is 32"});
  llama.differs("{name: llama_tiny, dim: 128}", {"hidden_size is 64, model.dim is 128", "set model.dim=64"});
  Folder newer(kLlama);
  newer.has_options("{name: llama_tiny, kv_heads: 0}", {{"kv_heads", "0"}});  // 0: as many as heads
  newer.differs("llama_tiny", {"num_key_value_heads is 4, model.kv_heads is 2"});
  newer.differs("{name: llama_tiny, kv_heads: 4, rope_theta: 300}", {"rope_theta is 10000, model.rope_theta is 300"});
  newer.differs("{name: llama_tiny, kv_heads: 4, rope_scaling: {type: llama3}}", {"rope_type is none, model.rope_scaling.type is llama3"});
}

TEST_CASE("GPT-2 and ViT") {
  Folder gpt2(R"({"model_type": "gpt2", "n_head": 2, "layer_norm_epsilon": 1e-06, "activation_function": "relu"})");
  gpt2.has_options("gpt2_tiny", {{"norm_eps", "1e-06"}, {"activation", "relu"}});
  gpt2.differs("{name: gpt2_tiny, heads: 4, activation: gelu}", {"n_head is 2, model.heads is 4", "activation_function is relu"});
  Folder vit(R"({"model_type": "vit", "num_attention_heads": 12, "layer_norm_eps": 1e-12, "hidden_act": "gelu_new", "image_size": 384,
    "architectures": ["ViTForImageClassification"], "id2label": {"0": "a", "1": "b", "2": "c"}})");
  vit.has_options("vit_b16", {{"norm_eps", "1e-12"}, {"gelu", "tanh"}, {"image_size", "384"}, {"num_classes", "3"}});
  vit.has_options("{name: vit_b16, image_size: 224, num_classes: 7}",
                  {{"image_size", "224"}, {"num_classes", "7"}});  // positions are resized, and the head is new
  vit.differs("{name: vit_b16, norm_eps: 1.0e-6}", {"layer_norm_eps is 1e-12, model.norm_eps is 1e-06", "model.norm_eps=1e-12"});
  vit.differs("{name: vit_b16, gelu: exact}", {"hidden_act is gelu_new, model.gelu is exact"});
}

TEST_CASE("a folder describes a model that has no name, and options that are open at the time of a configuration") {
  Folder llama(kLlama31);
  CHECK(llama.complete("").name == "llama");
  llama.has_options("", {{"heads", "4"}, {"rope_scaling.type", "llama3"}});
  CHECK(Folder(R"({"model_type": "resnet", "layer_type": "basic", "depths": [3, 4, 6, 3], "hidden_sizes": [64, 128, 256, 512]})")
            .complete("")
            .name == "resnet34");
  TempDir dir;
  std::ofstream(dir / "c.yaml") << "model: {weights: " + llama.file() + ", norm_eps: 0.5}\ndata: {name: generated_text}\n";
  const auto config = load_config((dir / "c.yaml").string());
  CHECK(config.model.name == "llama");
  CHECK(config.model.options.find("heads")->scalar() == "4");
  CHECK(config.model.options.find("norm_eps")->scalar() == "0.5");  // the contradiction is reported when the weights are loaded
  for (const char* text : {"{}", "{\"model_type\": \"granite\"}"}) {
    Folder other(text);
    CHECK_MESSAGE(has(error_of([&] { other.complete(""); }).what(), has(text, "granite") ? "model_type is granite" : "no model is named"),
                  text);
  }
}

TEST_CASE("files of other networks are refused, damaged ones are not compared, and strictness is an option") {
  Folder("{\"model_type\": \"bert\", \"num_attention_heads\": 12}").differs("vit_b16", {"model_type is bert, model.name is vit_b16"});
  Folder("{\"model_type\": \"gpt2\", \"n_head\": 3}")
      .differs("resnet18", {"model_type is gpt2, model.name is resnet18", "set model.name=gpt2"});
  Folder("{\"model_type\": \"resnet\"}").differs("resnet18", {"model.name=resnet50"});
  Folder("{\"model_type\": \"gemma\"}").differs("llama_tiny", {"model_type is gemma"});
  Folder("{\"model_type\": \"gpt2\", \"n_head\": \"two\"}")
      .differs("{name: gpt2_tiny, heads: 12}", {"n_head is two, this network has a number"});
  for (const auto& text : {std::string("{"), std::string("[1]"), std::string(), std::string(100'000, '['),
                           std::string("{\"model_type\": 3}"), std::string("{\"n_head\": 3}")})
    CHECK(Folder(text).complete("gpt2_tiny").options == ConfigNode::map());
  std::string said;
  const ScopedLogSink sink([&](LogLevel, std::string_view text) { said += text; });
  Folder lenient("{\"model_type\": \"gpt2\", \"n_head\": 3}");
  lenient.complete("{name: gpt2_tiny, weights_strict: false}");
  CHECK(has(said, "n_head is 3, model.heads is 2"));
}
