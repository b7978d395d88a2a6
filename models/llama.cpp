#include "npu_train/models/llama.hpp"

#include "llama_net.hpp"
#include "llama_options.hpp"

namespace npu_train {

const ConfigTable<RopeScaling>& RopeScaling::config_table() {
  using T = RopeScaling;
  static const auto table =
      ConfigTable<T>("rope_scaling")
          .field("type", &T::type, "none; llama3: the form of Llama 3.1", one_of({"none", "llama3"}))
          .field("factor", &T::factor, "low frequencies are divided by it", more_than(0))
          .field("low_freq_factor", &T::low_freq_factor, "waves with fewer periods in the original context are scaled", more_than(0))
          .field("high_freq_factor", &T::high_freq_factor, "waves with more periods in the original context are not", more_than(0))
          .field("original_context", &T::original_context, "tokens of the texts of the first training", between(1, 1 << 24))
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
