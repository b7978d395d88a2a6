#include "engine/hub_config.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train::detail {
namespace {

constexpr const char* kHubConfig = "config.json";
constexpr JsonLimits kHubLimits{.depth = 32, .values = 200'000, .max_bytes = uint64_t{8} << 20};

std::string number_text(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? std::to_string(static_cast<int64_t>(value)) : shortest(value);
}

std::string family_of(const std::string& model) {
  for (const char* family : {"gpt2", "llama", "vit"})
    if (model == family || model.starts_with(std::string(family) + "_")) return family;
  return "";
}

// Compares the keys of a config.json with the options of a model.
class HubComparison {
 public:
  HubComparison(const Json& config, const PartConfig& model) : config_(config), model_(model) {}

  std::optional<double> theirs(const std::string& key) const { return number_in(config_, key); }
  static std::optional<double> number_in(const Json& object, const std::string& key) {
    const auto* value = object.find(key);
    const bool is_number = value != nullptr && (value->kind() == Json::Kind::Integer || value->kind() == Json::Kind::Number);
    return is_number ? std::optional(value->number(kHubConfig)) : std::nullopt;
  }
  std::optional<double> here(const std::string& option) const {
    const auto* node = find(option);
    if (node == nullptr || !node->is_scalar()) return std::nullopt;
    return decimal_number(node->scalar());
  }
  std::string text_here(const std::string& option) const {
    const auto* node = find(option);
    return node != nullptr && node->is_scalar() ? node->scalar() : "";
  }

  void must_equal(const std::string& name, std::optional<double> wanted, const std::string& option, std::optional<double> given) {
    if (!wanted || !given || *wanted == *given) return;
    add(name, number_text(*wanted), option, number_text(*given));
  }
  void must_equal(const std::string& key, const std::string& option) { must_equal(key, theirs(key), option, here(option)); }
  // The smaller context of a training is no difference.
  void must_not_exceed(const std::string& key, const std::string& option) {
    const auto wanted = theirs(key), given = here(option);
    if (wanted && given && *given > *wanted) add(key, number_text(*wanted), option, number_text(*given));
  }
  void must_be_text(const std::string& name, const std::string& wanted, const std::string& option) {
    if (const auto given = text_here(option); !given.empty() && given != wanted) add(name, wanted, option, given);
  }
  // A property that our network has by itself.
  void must_be(const std::string& key, const std::vector<std::string>& known) {
    const auto* value = config_.find(key);
    if (value == nullptr || !value->is_text()) return;
    for (const auto& name : known)
      if (value->text(kHubConfig) == name) return;
    out.push_back({key + " is " + value->text(kHubConfig), "this model has " + known.front(), ""});
  }
  void must_be(const std::string& key, double known) {
    if (const auto value = theirs(key); value && *value != known)
      out.push_back({key + " is " + number_text(*value), "this model has " + number_text(known), ""});
  }

  std::vector<HubDifference> out{};

 private:
  const ConfigNode* find(const std::string& option) const {
    const ConfigNode* node = &model_.options;
    for (size_t begin = 0; node != nullptr && begin <= option.size();) {
      const auto end = std::min(option.find('.', begin), option.size());
      node = node->find(option.substr(begin, end - begin));
      begin = end + 1;
    }
    return node;
  }
  void add(const std::string& name, const std::string& wanted, const std::string& option, const std::string& given) {
    out.push_back({name + " is " + wanted, "model." + option + " is " + given, "model." + option + "=" + wanted});
  }

  const Json& config_;
  const PartConfig& model_;
};

// transformers 4 has rope_theta and rope_scaling, transformers 5 both in rope_parameters.
void compare_rope(HubComparison& c, const Json& config) {
  const auto* parameters = config.find("rope_parameters");
  const auto* scaling = config.find("rope_scaling");
  if (parameters != nullptr && parameters->is_object()) {
    c.must_equal("rope_theta", HubComparison::number_in(*parameters, "rope_theta"), "rope_theta", c.here("rope_theta"));
    scaling = parameters;
  }
  c.must_equal("rope_theta", "rope_theta");
  std::string type = "none";
  if (scaling != nullptr && scaling->is_object())
    for (const char* key : {"rope_type", "type"})
      if (const auto* value = scaling->find(key); value != nullptr && value->is_text()) {
        type = value->text(kHubConfig) == "default" ? "none" : value->text(kHubConfig);
        break;
      }
  c.must_be_text("rope_type", type, "rope_scaling.type");
  if (type != "llama3") return;
  for (const auto& [theirs, here] : std::map<std::string, std::string>{{"factor", "factor"},
                                                                       {"low_freq_factor", "low_freq_factor"},
                                                                       {"high_freq_factor", "high_freq_factor"},
                                                                       {"original_max_position_embeddings", "original_context"}})
    c.must_equal(theirs, HubComparison::number_in(*scaling, theirs), "rope_scaling." + here, c.here("rope_scaling." + here));
}

void compare_llama(HubComparison& c, const Json& config) {
  c.must_equal("num_attention_heads", "heads");
  auto kv_heads = c.here("kv_heads");
  if (kv_heads && *kv_heads == 0) kv_heads = c.here("heads");
  const auto theirs = c.theirs("num_key_value_heads");
  c.must_equal("num_key_value_heads", theirs ? theirs : c.theirs("num_attention_heads"), "kv_heads", kv_heads);
  c.must_not_exceed("max_position_embeddings", "context");
  c.must_equal("rms_norm_eps", "norm_eps");
  compare_rope(c, config);
  c.must_be("hidden_act", {"silu", "swish"});
  if (const auto dim = c.here("dim"), heads = c.here("heads"); dim && heads && *heads > 0) c.must_be("head_dim", *dim / *heads);
}

void compare_gpt2(HubComparison& c) {
  c.must_equal("n_head", "heads");
  c.must_be("layer_norm_epsilon", 1e-5);
  c.must_be("activation_function", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"});
}

void compare_vit(HubComparison& c, const Json& config) {
  c.must_equal("num_attention_heads", "heads");
  c.must_equal("layer_norm_eps", "norm_eps");
  const auto* activation = config.find("hidden_act");
  if (activation == nullptr || !activation->is_text()) return;
  const auto& name = activation->text(kHubConfig);
  if (name == "gelu" || name.starts_with("gelu_")) c.must_be_text("hidden_act (" + name + ")", name == "gelu" ? "exact" : "tanh", "gelu");
}

}  // namespace

std::filesystem::path hub_config_of(const std::filesystem::path& weights) {
  std::error_code error;
  const auto folder = std::filesystem::is_directory(weights, error) ? weights : weights.parent_path();
  const auto config = folder / kHubConfig;
  return std::filesystem::is_regular_file(config, error) ? config : std::filesystem::path();
}

std::vector<HubDifference> hub_differences(const std::filesystem::path& path, const PartConfig& model) {
  const auto family = family_of(model.name);
  if (family.empty()) return {};
  const auto config = load_json(path, kHubLimits);
  const auto* type = config.find("model_type");
  if (type == nullptr || !type->is_text() || (type->text(kHubConfig) == "gpt2") != (family == "gpt2") ||
      (type->text(kHubConfig) == "vit") != (family == "vit"))
    return {};
  HubComparison comparison(config, model);
  if (family == "llama") compare_llama(comparison, config);
  if (family == "gpt2") compare_gpt2(comparison);
  if (family == "vit") compare_vit(comparison, config);
  return std::move(comparison.out);
}

void check_hub_config(const std::filesystem::path& weights, const PartConfig& model, bool strict) {
  const auto config = hub_config_of(weights);
  if (config.empty()) return;
  std::vector<HubDifference> differences;
  try {
    differences = hub_differences(config, model);
  } catch (const Error& e) {
    log_warning("weights: the options of the model are not compared with ", config.string(), ": ", e.what());
    return;
  }
  if (differences.empty()) return;
  std::vector<std::string> lines, keys;
  for (const auto& d : differences) {
    lines.push_back(d.theirs + ", " + d.here);
    if (!d.key.empty()) keys.push_back(d.key);
  }
  const auto text = config.string() + " is of another network: " + join(lines, "; ");
  if (!strict) return log_warning("weights: ", text);
  throw Error(ErrorKind::Checkpoint, "weights", text,
              keys.empty() ? "model.weights_strict=false loads the weights nevertheless" : "set " + join(keys, " "));
}

}  // namespace npu_train::detail
