#include "models/hub/hub_reader.hpp"

#include <algorithm>
#include <cmath>

#include "npu_train/core/text.hpp"

namespace npu_train::detail {
namespace {

bool is_number(const Json& value) { return value.kind() == Json::Kind::Integer || value.kind() == Json::Kind::Number; }

bool is_empty(const Json& value) {
  return value.is_null() || (value.is_text() && value.text(kHubFile).empty()) || (value.is_array() && value.items(kHubFile).empty()) ||
         (value.is_object() && value.members(kHubFile).empty());
}

bool are_equal(const Json& a, const Json& b) {
  return is_number(a) && is_number(b) ? a.number(kHubFile) == b.number(kHubFile) : a.dump(0) == b.dump(0);
}

std::string number_text(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? std::to_string(static_cast<int64_t>(value)) : shortest(value);
}

// Keys that any network of transformers may have and that do not affect the logits: names, settings of programs, settings of text
// generation, and the dropout rates and initial values, which each training may choose.
const std::set<std::string>& keys_of_all() {
  static const std::set<std::string> all = {"_attn_implementation",
                                            "_attn_implementation_autoset",
                                            "_commit_hash",
                                            "_name_or_path",
                                            "_num_labels",
                                            "architectures",
                                            "attn_implementation",
                                            "bad_words_ids",
                                            "begin_suppress_tokens",
                                            "bos_token_id",
                                            "chunk_size_feed_forward",
                                            "decoder_start_token_id",
                                            "diversity_penalty",
                                            "do_sample",
                                            "dtype",
                                            "early_stopping",
                                            "encoder_no_repeat_ngram_size",
                                            "eos_token_id",
                                            "eos_token_ids",
                                            "exponential_decay_length_penalty",
                                            "finetuning_task",
                                            "forced_bos_token_id",
                                            "forced_decoder_ids",
                                            "forced_eos_token_id",
                                            "gradient_checkpointing",
                                            "id2label",
                                            "initializer_factor",
                                            "initializer_range",
                                            "label2id",
                                            "length_penalty",
                                            "max_length",
                                            "min_length",
                                            "model_type",
                                            "name_or_path",
                                            "no_repeat_ngram_size",
                                            "num_beam_groups",
                                            "num_beams",
                                            "num_labels",
                                            "num_return_sequences",
                                            "output_attentions",
                                            "output_hidden_states",
                                            "output_past",
                                            "output_scores",
                                            "pad_token_id",
                                            "prefix",
                                            "problem_type",
                                            "remove_invalid_values",
                                            "repetition_penalty",
                                            "return_dict",
                                            "return_dict_in_generate",
                                            "sep_token_id",
                                            "suppress_tokens",
                                            "task_specific_params",
                                            "temperature",
                                            "tf_legacy_loss",
                                            "tie_encoder_decoder",
                                            "tokenizer_class",
                                            "top_k",
                                            "top_p",
                                            "torch_dtype",
                                            "torchscript",
                                            "transformers_version",
                                            "typical_p",
                                            "use_bfloat16",
                                            "use_cache"};
  return all;
}

// Translates transformers' name of an activation to ours; "" if we have none.
std::string our_activation(const std::string& theirs) {
  static const std::map<std::string, std::string> known = {{"gelu", "gelu"},
                                                           {"gelu_python", "gelu"},
                                                           {"gelu_new", "gelu_tanh"},
                                                           {"gelu_fast", "gelu_tanh"},
                                                           {"gelu_accurate", "gelu_tanh"},
                                                           {"gelu_pytorch_tanh", "gelu_tanh"},
                                                           {"gelu_python_tanh", "gelu_tanh"},
                                                           {"quick_gelu", "quick_gelu"},
                                                           {"relu", "relu"},
                                                           {"silu", "silu"},
                                                           {"swish", "silu"}};
  const auto found = known.find(theirs);
  return found != known.end() ? found->second : "";
}

}  // namespace

std::string hub_text(const Json& value) {
  if (value.is_text()) return value.text(kHubFile);
  if (is_number(value)) return number_text(value.number(kHubFile));
  auto text = value.dump(0);
  constexpr size_t kLongest = 60;
  return text.size() > kLongest ? text.substr(0, kLongest) + "..." : text;
}

ConfigNode hub_number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return ConfigNode(static_cast<int64_t>(value));
  return ConfigNode(value);
}

HubReader::HubReader(const Json& config, HubNetwork& network, const std::string& section) : network_(network), object_(Json::object()) {
  if (section.empty()) {
    object_ = config;
  } else {
    if (const auto* found = config.find(section); found != nullptr && found->is_object()) object_ = *found;
    prefix_ = section + ".";
  }
}

std::optional<Json> HubReader::value(const std::string& key) {
  read_.insert(key);
  const auto* found = object_.find(key);
  return found != nullptr ? std::optional(*found) : std::nullopt;
}

bool HubReader::has(const std::string& key) const {
  const auto* found = object_.find(key);
  return found != nullptr && !found->is_null();
}

const Json* HubReader::object(const std::string& key) {
  read_.insert(key);
  const auto* found = object_.find(key);
  return found != nullptr && found->is_object() ? found : nullptr;
}

std::optional<double> HubReader::number(const std::string& key, std::optional<double> standard) {
  const auto found = value(key);
  if (!found) return standard;
  if (is_number(*found)) return found->number(kHubFile);
  if (!found->is_null()) foreign(key, hub_text(*found), "a number");
  return std::nullopt;
}

std::string HubReader::text(const std::string& key, const std::string& standard) {
  const auto found = value(key);
  if (!found) return standard;
  if (found->is_text()) return found->text(kHubFile);
  if (!found->is_null()) foreign(key, hub_text(*found), "a text");
  return standard;
}

void HubReader::add(const std::string& key, const std::string& theirs, const std::string& option, const ConfigNode& value,
                    HubOption::Rule rule, bool size, double zero) {
  network_.options.push_back({prefix_ + key, theirs, option, value, rule, size, /*compared=*/has(key), zero});
}

int64_t HubReader::size(const std::string& key, int64_t standard, const std::string& option, double zero) {
  const auto found = number(key, static_cast<double>(standard));
  const double value = found.value_or(static_cast<double>(standard));
  add(key, number_text(value), option, hub_number(value), HubOption::Rule::Equal, /*size=*/true, zero);
  return static_cast<int64_t>(value);
}

double HubReader::heads(const std::string& key, int64_t standard, const std::string& option) {
  const auto fallback = static_cast<double>(standard);
  const auto count = number(key, fallback).value_or(fallback);
  set(key, hub_text(count), option, ConfigNode(static_cast<int64_t>(count)), /*size=*/true);
  return count;
}

void HubReader::longest(const std::string& key, int64_t standard, const std::string& option) {
  const double value = number(key, static_cast<double>(standard)).value_or(static_cast<double>(standard));
  add(key, number_text(value), option, hub_number(value), HubOption::Rule::AtMost, /*size=*/true, 0);
}

void HubReader::number(const std::string& key, double standard, const std::string& option) {
  const double value = number(key, standard).value_or(standard);
  set(key, number_text(value), option, hub_number(value));
}

void HubReader::flag(const std::string& key, bool standard, const std::string& option) {
  const auto found = value(key);
  if (found && found->kind() != Json::Kind::Boolean && !found->is_null()) return foreign(key, hub_text(*found), "true or false");
  const bool theirs = found && !found->is_null() ? found->boolean(kHubFile) : standard;
  set(key, theirs ? "true" : "false", option, ConfigNode(theirs));
}

void HubReader::activation(const std::string& key, const std::string& standard, const std::string& option) {
  const auto theirs = text(key, standard), ours = our_activation(theirs);
  if (ours.empty()) return foreign(key, theirs, "gelu, gelu_new, quick_gelu, relu or silu");
  set(key, theirs, option, ConfigNode(ours));
}

void HubReader::open(const std::string& key, const std::string& option, const ConfigNode& value) {
  add(key, value.scalar(), option, value, HubOption::Rule::Open, /*size=*/false, 0);
}

void HubReader::set(const std::string& key, const std::string& theirs, const std::string& option, const ConfigNode& value, bool size,
                    double zero) {
  add(key, theirs, option, value, HubOption::Rule::Equal, size, zero);
  network_.options.back().compared = true;  // compared even if the key is missing, because the shapes of tensors do not show the difference
}

void HubReader::must_be(const std::string& key, const Json& ours) {
  const auto found = value(key);
  if (found && !is_empty(*found) && !are_equal(*found, ours)) foreign(key, hub_text(*found), hub_text(ours));
}

void HubReader::architectures(const std::set<std::string>& known) {
  const auto found = value("architectures");
  if (!found || !found->is_array()) return;
  for (const auto& name : found->items(kHubFile))
    if (name.is_text() && known.count(name.text(kHubFile)) == 0)
      foreign("architectures", hub_text(name), join(std::vector<std::string>(known.begin(), known.end()), " or "));
}

bool HubReader::has_architecture(const std::string& name) const {
  const auto* all = object_.find("architectures");
  if (all == nullptr || !all->is_array()) return false;
  const auto& names = all->items(kHubFile);
  return std::any_of(names.begin(), names.end(), [&](const Json& one) { return one.is_text() && one.text(kHubFile) == name; });
}

void HubReader::classes(const std::set<std::string>& classifiers) {
  if (std::any_of(classifiers.begin(), classifiers.end(), [&](const auto& name) { return has_architecture(name); }))
    open("id2label", "num_classes", ConfigNode(labels()));
}

int64_t HubReader::labels() const {
  if (const auto* names = object_.find("id2label"); names != nullptr && names->is_object())
    return static_cast<int64_t>(names->members(kHubFile).size());
  const auto* number = object_.find("num_labels");
  return number != nullptr && is_number(*number) ? static_cast<int64_t>(number->number(kHubFile)) : 2;
}

void HubReader::foreign(const std::string& key, const std::string& value, const std::string& ours) {
  network_.foreign.push_back(prefix_ + key + " is " + value + ", this network has " + ours);
}

void HubReader::finish() {
  for (const char* key : {"is_decoder", "is_encoder_decoder", "add_cross_attention"})
    if (read_.count(key) == 0) must_be(key, false);
  for (const auto& [key, item] : object_.members(kHubFile))
    if (read_.count(key) == 0 && keys_of_all().count(key) == 0 && !is_empty(item))
      network_.foreign.push_back(prefix_ + key + " is " + hub_text(item) + ", which is unknown here");
}

}  // namespace npu_train::detail
