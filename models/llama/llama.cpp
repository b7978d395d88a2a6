#include "npu_train/models/llama.hpp"

#include "models/blocks/activation.hpp"
#include "models/llama/llama_net.hpp"

namespace npu_train {

const ConfigTable<RopeScaling>& RopeScaling::config_table() {
  using T = RopeScaling;
  static const auto table =
      ConfigTable<T>("rope_scaling")
          .field("type", &T::type, "none; linear: divides all frequencies; llama3: the form of Llama 3.1; yarn: YaRN",
                 one_of(detail::rope_types(), {{"default", "none"}}))
          .field("factor", &T::factor, "frequencies are divided by it: all of linear, the low ones of llama3 and yarn", more_than(0))
          .field("low_freq_factor", &T::low_freq_factor, "waves with fewer periods in the original context are scaled", more_than(0))
          .field("high_freq_factor", &T::high_freq_factor, "waves with more periods in the original context are not", more_than(0))
          .field("original_context", &T::original_context, "tokens of the texts of the first training", between(1, 1 << 24))
          .field("beta_fast", &T::beta_fast, "of yarn: waves with more periods in the original context are not scaled", more_than(0))
          .field("beta_slow", &T::beta_slow, "of yarn: waves with fewer periods in the original context are scaled", more_than(0))
          .field("attention_factor", &T::attention_factor, "of yarn: multiplies rotated queries and keys; 0: 0.1 ln(factor) + 1",
                 at_least(0))
          .synonym("rope_type", "type")
          .synonym("original_max_position_embeddings", "original_context");
  return table;
}

const ConfigTable<LlamaOptions>& LlamaOptions::config_table() {
  using T = LlamaOptions;
  static const auto table =
      ConfigTable<T>("model llama")
          .field("vocab_size", &T::vocab_size, "number of different tokens", between(1, 1 << 24))
          .field("context", &T::context, "tokens of the longest input", between(1, 1 << 20))
          .field("layers", &T::layers, "blocks", between(1, 4096))
          .field("heads", &T::heads, "number of attention heads of queries", between(1, 4096))
          .field("kv_heads", &T::kv_heads, "number of attention heads of keys and values, divides heads; 0: heads", between(0, 4096))
          .field("dim", &T::dim, "width of a token; must be a multiple of 2 * heads", between(1, 1 << 16))
          .field("hidden", &T::hidden, "width of the MLP; 0: 8/3 of dim, rounded up to a multiple of 256", between(0, 1 << 20))
          .field("rope_theta", &T::rope_theta, "base of the rotary frequencies", between(1, 1e9))
          .field("rope_scaling", &T::rope_scaling, "rotary frequencies for longer texts")
          .field("sliding_window", &T::sliding_window, "a token sees this many tokens, itself included, as in Mistral; 0: all earlier ones",
                 between(0, 1 << 24))
          .field("activation", &T::activation, "of the gate", one_of(detail::activation_names()))
          .field("norm_eps", &T::norm_eps, "added to the mean square in the norms", between(0, 1))
          .field("tie_embeddings", &T::tie_embeddings, "the head uses the token embedding")
          .field("qkv_bias", &T::qkv_bias, "biases in the projections of queries, keys and values, as in Qwen2")
          .field("fused_kernels", &T::fused_kernels,
                 "auto: products with weights prepacked for oneDNN, and attention's bf16 backward in fp32, if that is faster; "
                 "false: PyTorch's operators",
                 one_of({"auto", "false"}))
          .field("weights", &T::weights, "file with initial weights: safetensors, .pth or a checkpoint")
          .field("weights_strict", &T::weights_strict,
                 "true: weights of another network are an error; false: the matching tensors are loaded")
          .synonym("pretrained", "weights")
          .synonym("max_position_embeddings", "context")
          .synonym("max_seq_len", "context")
          .synonym("n_layers", "layers")
          .synonym("num_hidden_layers", "layers")
          .synonym("num_layers", "layers")
          .synonym("n_heads", "heads")
          .synonym("num_attention_heads", "heads")
          .synonym("num_heads", "heads")
          .synonym("n_kv_heads", "kv_heads")
          .synonym("num_key_value_heads", "kv_heads")
          .synonym("hidden_size", "dim")
          .synonym("embed_dim", "dim")
          .synonym("hidden_dim", "hidden")
          .synonym("intermediate_size", "hidden")
          .synonym("rms_norm_eps", "norm_eps")
          .synonym("tie_word_embeddings", "tie_embeddings");
  return table;
}

LlamaOptions llama_tiny_options() {
  return {.vocab_size = 256, .context = 64, .layers = 2, .heads = 4, .kv_heads = 2, .dim = 64, .hidden = 176};
}

Model llama(const LlamaOptions& options, const std::string& name) {
  detail::check_llama_options(options, "llama");
  return detail::decoder_model(name, std::make_shared<detail::Llama>(options), options);
}

}  // namespace npu_train
