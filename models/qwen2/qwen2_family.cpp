// Qwen2 (Yang et al., "Qwen2 Technical Report", 2024): a Llama with biases in the projections of queries, keys and values. Its weights have
// the names of Llama's.
#include "models/families.hpp"
#include "models/llama/llama_hub.hpp"
#include "npu_train/models/llama.hpp"

namespace npu_train::detail {
namespace {

void read_qwen2(const Json& config, HubNetwork& out) {
  HubReader file(config, out);
  read_rotary_decoder(config, file, out, {.kv_heads = 32, .hidden = 22016, .context = 32768});
  out.model = "qwen2";
  file.set("model_type", "qwen2", "qkv_bias", ConfigNode(true));
  file.must_be("use_sliding_window", false);
  file.set("use_sliding_window", "false", "sliding_window", ConfigNode(0));
  file.unused({"layer_types", "max_window_layers", "sliding_window"});  // they describe layers with a sliding window
  file.architectures({"Qwen2ForCausalLM", "Qwen2Model"});
  file.finish();
}

LlamaOptions qwen2_options() {
  LlamaOptions o;
  o.vocab_size = 151936, o.context = 32768, o.layers = 24, o.heads = 14, o.kv_heads = 2, o.dim = 896, o.hidden = 4864;
  o.rope_theta = 1e6, o.norm_eps = 1e-6, o.tie_embeddings = true, o.qkv_bias = true;
  return o;
}

LlamaOptions qwen2_tiny_options() {
  auto o = llama_tiny_options();
  o.tie_embeddings = true, o.qkv_bias = true;
  return o;
}

void add_qwen2(ModelRegistry& registry) {
  add_network(registry, llama, "qwen2",
              "Qwen2 of configurable size; by default with 494 million parameters: layers 24, heads 14, kv_heads 2, dim 896",
              qwen2_options());
  add_network(registry, llama, "qwen2_tiny", "Qwen2 for bytes: vocab_size 256, context 64, layers 2, heads 4, kv_heads 2, dim 64",
              qwen2_tiny_options());
}

}  // namespace

ModelFamily qwen2_family() { return {.name = "qwen2", .add = add_qwen2, .hub_types = {{"qwen2", read_qwen2}}}; }

}  // namespace npu_train::detail
