#include "npu_train/models/llama.hpp"

#include "llama_net.hpp"
#include "llama_options.hpp"

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
  static const auto table = detail::llama_fields<LlamaOptions>("model llama");
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
