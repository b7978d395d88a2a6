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

// As transformers 4 and 5 write it.
constexpr const char* kLlama31 =
    R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_attention_heads": 4, "num_key_value_heads": 2,
  "max_position_embeddings": 64, "rms_norm_eps": 1e-05, "hidden_act": "silu", "rope_theta": 500000.0, "head_dim": 16,
  "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8192}})";
constexpr const char* kLlama = R"({"model_type": "llama", "num_attention_heads": 4, "max_position_embeddings": 64, "rms_norm_eps": 1e-05,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})";

class Folder {
 public:
  explicit Folder(const std::string& config) { std::ofstream(dir_ / "config.json") << config; }

  void agrees(const std::string& model) { check_weights_options(part_of(model), builtin_parts(), file()); }
  void differs(const std::string& model, const std::vector<std::string>& words) {
    const auto error = error_of([&] { check_weights_options(part_of(model), builtin_parts(), file()); });
    CHECK(error.kind() == ErrorKind::Checkpoint);
    for (const auto& text : words) CHECK_MESSAGE(has(error.what(), text), error.what());
  }

 private:
  static PartConfig part_of(const std::string& model) { return bind_config(parse_yaml("model: " + model, "t")).model; }
  std::string file() const { return (dir_ / "model.safetensors").string(); }  // need not exist

  TempDir dir_;
};

}  // namespace

TEST_CASE("options that are those of config.json are accepted, and each other one is named with its value") {
  Folder llama(kLlama31);
  const std::string scaling = "rope_scaling: {type: llama3}";
  llama.agrees("{name: llama_tiny, rope_theta: 500000, " + scaling + "}");
  llama.agrees("{name: llama_tiny, rope_theta: 500000, context: 32, " + scaling + "}");  // shorter texts
  llama.differs("{name: llama_tiny, heads: 2, rope_theta: 10000, context: 128, norm_eps: 1.0e-6}",
                {"num_attention_heads is 4, model.heads is 2", "rope_theta is 500000, model.rope_theta is 10000",
                 "max_position_embeddings is 64, model.context is 128", "rms_norm_eps is 1e-05, model.norm_eps is 1e-06",
                 "rope_type is llama3, model.rope_scaling.type is none", "model.heads=4", "model.rope_scaling.type=llama3"});
  llama.differs("{name: llama_tiny, kv_heads: 0, rope_theta: 500000, " + scaling + "}", {"num_key_value_heads is 2, model.kv_heads is 4"});
  llama.differs("{name: llama_tiny, rope_theta: 500000, rope_scaling: {type: llama3, factor: 32}}",
                {"factor is 8, model.rope_scaling.factor is 32"});
  llama.differs("{name: llama_tiny, dim: 128, rope_theta: 500000, " + scaling + "}", {"head_dim is 16, this model has 32"});
  Folder newer(kLlama);
  newer.agrees("{name: llama_tiny, kv_heads: 0}");  // as many as heads
  newer.differs("{name: llama_tiny}", {"num_key_value_heads is 4, model.kv_heads is 2"});
  newer.differs("{name: llama_tiny, kv_heads: 4, rope_theta: 300}", {"rope_theta is 10000, model.rope_theta is 300"});
  newer.differs("{name: llama_tiny, kv_heads: 4, rope_scaling: {type: llama3}}", {"rope_type is none, model.rope_scaling.type is llama3"});
  Folder("{\"model_type\": \"llama\", \"hidden_act\": \"gelu\"}")
      .differs("{name: llama_tiny}", {"hidden_act is gelu, this model has silu"});
}

TEST_CASE("GPT-2 and ViT") {
  Folder gpt2(R"({"model_type": "gpt2", "n_head": 2, "layer_norm_epsilon": 1e-05, "activation_function": "gelu_new"})");
  gpt2.agrees("gpt2_tiny");
  gpt2.differs("{name: gpt2_tiny, heads: 4}", {"n_head is 2, model.heads is 4"});
  Folder other(R"({"model_type": "gpt2", "layer_norm_epsilon": 1e-06, "activation_function": "relu"})");
  other.differs("gpt2_tiny", {"layer_norm_epsilon is 1e-06", "activation_function is relu", "weights_strict=false"});
  Folder vit(R"({"model_type": "vit", "num_attention_heads": 12, "layer_norm_eps": 1e-12, "hidden_act": "gelu"})");
  vit.agrees("{name: vit_b16, norm_eps: 1.0e-12}");
  vit.differs("vit_b16", {"layer_norm_eps is 1e-12, model.norm_eps is 1e-06", "model.norm_eps=1e-12"});
  vit.differs("{name: vit_b16, norm_eps: 1.0e-12, gelu: tanh}", {"model.gelu is tanh"});
}

TEST_CASE("files of other networks and damaged ones are not compared, and strictness is an option") {
  Folder("{\"model_type\": \"bert\", \"num_attention_heads\": 12}").agrees("vit_b16");
  Folder("{\"n_head\": 3}").agrees("gpt2_tiny");
  Folder("{\"model_type\": \"gpt2\", \"n_head\": 3}").agrees("resnet18");
  for (const auto& text : {std::string("{"), std::string("[1]"), std::string(), std::string(100'000, '['),
                           std::string("{\"model_type\": 3}"), std::string("{\"model_type\": \"gpt2\", \"n_head\": \"two\"}")})
    Folder(text).agrees("gpt2_tiny");
  std::string said;
  const ScopedLogSink sink([&](LogLevel, std::string_view text) { said += text; });
  Folder("{\"model_type\": \"gpt2\", \"n_head\": 3}").agrees("{name: gpt2_tiny, weights_strict: false}");
  CHECK(has(said, "n_head is 3, model.heads is 2"));
}
