// Reads the config.json of Llama and Mistral. Defaults for missing keys are those of transformers.
#include <algorithm>
#include <cmath>

#include "models/llama/llama_hub.hpp"
#include "models/llama/llama_net.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {
namespace {

// Returns the factor on rotated queries and keys (Peng et al., "YaRN", ICLR 2024).
double yarn_scale(double factor, double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; }

double yarn_attention_factor(HubReader& rope, double factor) {
  const auto given = rope.number("attention_factor", std::nullopt);
  const auto scale = rope.number("mscale", std::nullopt), of_all = rope.number("mscale_all_dim", std::nullopt);
  if (given) return *given;
  return scale.value_or(0) != 0 && of_all.value_or(0) != 0 ? yarn_scale(factor, *scale) / yarn_scale(factor, *of_all)
                                                           : yarn_scale(factor, 1);
}

// Reads rotary positions: transformers 4 has rope_theta and rope_scaling, transformers 5 has both in rope_parameters.
void read_rope(const Json& config, HubReader& file, HubNetwork& out, double context) {
  const bool newer = file.object("rope_parameters") != nullptr;
  file.object("rope_scaling");
  HubReader rope(config, out, newer ? "rope_parameters" : "rope_scaling");
  auto type = rope.text("rope_type", "");
  if (const auto old = rope.text("type", ""); type.empty()) type = old;
  if (type.empty() || type == "default") type = "none";
  const double theta = file.number("rope_theta", 10000).value_or(10000);
  const double base = rope.number("rope_theta", theta).value_or(theta);
  (newer ? rope : file).set("rope_theta", hub_text(base), "rope_theta", hub_number(base));
  rope.must_be("partial_rotary_factor", 1.0);
  file.must_be("partial_rotary_factor", 1.0);
  const auto known = rope_types();
  if (std::find(known.begin(), known.end(), type) == known.end()) return rope.foreign("rope_type", type, join(known, " or "));
  rope.set("rope_type", type, "rope_scaling.type", ConfigNode(type));
  const auto set = [&](const std::string& key, const std::string& option, double standard) {
    rope.number(key, standard, "rope_scaling." + option);
  };
  // Prefers the key outside of the section, as transformers does.
  const bool outside = file.has("original_max_position_embeddings");
  HubReader& has_original = outside ? file : rope;
  const double original = has_original.number("original_max_position_embeddings", context).value_or(context);
  const double factor = rope.number("factor", std::nullopt).value_or(type == "yarn" && original > 0 ? context / original : 1);
  if (type != "none") set("factor", "factor", factor);
  if (type == "llama3" || type == "yarn") has_original.number("original_max_position_embeddings", context, "rope_scaling.original_context");
  if (type == "llama3") set("low_freq_factor", "low_freq_factor", 1), set("high_freq_factor", "high_freq_factor", 4);
  if (type == "yarn") {
    set("beta_fast", "beta_fast", 32), set("beta_slow", "beta_slow", 1);
    rope.must_be("truncate", true);
    const double scale = yarn_attention_factor(rope, factor);
    rope.set("attention_factor", hub_text(scale), "rope_scaling.attention_factor", hub_number(scale), /*size=*/false,
             /*zero=*/yarn_scale(factor, 1));
  }
  // Ignores the keys of other types, as transformers does.
  rope.unused({"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale",
               "mscale_all_dim", "attention_factor", "truncate"});
  rope.finish();
}

}  // namespace

void read_rotary_decoder(const Json& config, HubReader& file, HubNetwork& out, const RotaryDefaults& defaults) {
  out.model = "llama";
  const auto dim = file.number("hidden_size", 4096).value_or(4096);
  file.size("vocab_size", 32000, "vocab_size");
  file.size("num_hidden_layers", 32, "layers");
  file.size("hidden_size", 4096, "dim");
  file.size("intermediate_size", defaults.hidden, "hidden", static_cast<double>((8 * static_cast<int64_t>(dim) / 3 + 255) / 256 * 256));
  const auto heads = file.heads("num_attention_heads", 32);
  const double groups =
      file.number("num_key_value_heads", defaults.kv_heads > 0 ? static_cast<double>(defaults.kv_heads) : heads).value_or(heads);
  file.set("num_key_value_heads", hub_text(groups), "kv_heads", ConfigNode(static_cast<int64_t>(groups)), /*size=*/true, heads);
  file.longest("max_position_embeddings", defaults.context, "context");
  file.number("rms_norm_eps", 1e-6, "norm_eps");
  file.activation("hidden_act", "silu");
  file.flag("tie_word_embeddings", false, "tie_embeddings");
  file.must_be("head_dim", heads > 0 ? dim / heads : 0);
  file.must_be("attention_bias", false);
  file.must_be("mlp_bias", false);
  file.must_be("rope_interleaved", false);
  const auto context = static_cast<double>(defaults.context);
  read_rope(config, file, out, file.number("max_position_embeddings", context).value_or(context));
  file.unused({"attention_dropout", "is_decoder", "pretraining_tp", "is_llama_config", "unsloth_fixed", "unsloth_version",
               "transformers.js_config"});
}

void read_llama(const Json& config, HubNetwork& out) {
  HubReader file(config, out);
  read_rotary_decoder(config, file, out, {.hidden = 11008, .context = 2048});
  file.set("sliding_window", "null", "sliding_window", ConfigNode(0));  // Llama ignores this key
  file.must_be("sliding_window", Json());
  file.architectures({"LlamaForCausalLM", "LLaMAForCausalLM", "LlamaModel"});
  file.finish();
}

void read_mistral(const Json& config, HubNetwork& out) {
  HubReader file(config, out);
  read_rotary_decoder(config, file, out, {.kv_heads = 8, .hidden = 14336, .context = 131072});
  const auto window = static_cast<int64_t>(file.number("sliding_window", 4096).value_or(0));
  file.set("sliding_window", window > 0 ? std::to_string(window) : "null", "sliding_window", ConfigNode(window));
  file.architectures({"MistralForCausalLM", "MistralModel"});
  file.finish();
}

}  // namespace npu_train::detail
