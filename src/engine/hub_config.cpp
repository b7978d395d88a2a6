#include "engine/hub_config.hpp"

#include <algorithm>
#include <optional>

#include "engine/config_rules.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/weights.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/models/hub_network.hpp"

namespace npu_train {
namespace {

constexpr const char* kHubConfig = "config.json";

bool is_size_of(const std::string& name, const std::string& model) { return name.starts_with(model + "_"); }

// Returns false for a model that the program registered itself, even under the name of a built-in model.
bool is_compared(const std::string& name, const Parts& parts) {
  return name.empty() || (has_hub_config(name) && detail::is_own_part(parts.models, builtin_parts().models, name));
}

const ConfigNode* option_in(const ConfigNode& options, const std::string& option) {
  const ConfigNode* node = &options;
  for (size_t begin = 0; node != nullptr && begin <= option.size();) {
    const auto end = std::min(option.find('.', begin), option.size());
    node = node->find(option.substr(begin, end - begin));
    begin = end + 1;
  }
  return node;
}

bool agrees(const HubOption& o, const std::string& given) {
  const auto here = decimal_number(given), there = decimal_number(o.value.scalar());
  if (!here || !there) return given == o.value.scalar();
  const double meant = *here == 0 && o.zero != 0 ? o.zero : *here;
  return o.rule == HubOption::Rule::AtMost ? meant <= *there : meant == *there;
}

// Returns nullopt, with a warning, for a config.json that does not describe a network.
std::optional<Json> described(const std::filesystem::path& path) {
  try {
    auto config = load_json(path, detail::kHubLimits);
    for (const char* key : {"model_type", "architecture"})
      if (const auto* value = config.find(key); value != nullptr && value->is_text()) return config;
    log_warning("weights: ", path.string(), " has no model_type, so that the options of the model are not compared with it");
  } catch (const Error& e) {
    log_warning("weights: the options of the model are not compared with ", path.string(), ": ", e.what());
  }
  return std::nullopt;
}

class Completion {
 public:
  Completion(const HubNetwork& network, PartConfig model, const Parts& parts) : network_(network), model_(std::move(model)) {
    if (model_.name.empty()) model_.name = network.model;
    named_size_ = is_size_of(model_.name, network.model);
    ConfigProblems problems;
    resolved_ = parts.models.resolve(model_, "model", problems).options;
    problems.throw_if_any();
  }

  bool same_model() const { return model_.name == network_.model || named_size_; }
  bool is_open(const HubOption& o) const { return option_in(model_.options, o.option) == nullptr && !(named_size_ && o.size); }
  // Fills in the options that are not set. Options with Rule::Open are filled in only if `all` is true.
  PartConfig filled(bool all) const {
    auto out = model_;
    for (const auto& o : network_.options)
      if (is_open(o) && (all || o.rule != HubOption::Rule::Open) && option_in(out.options, o.option) == nullptr)
        out.options.set(o.option, o.value);
    return out;
  }
  // Collects the options that contradict the file ("num_attention_heads is 32, model.heads is 12"), and the keys to set.
  void compare(std::vector<std::string>& lines, std::vector<std::string>& keys) const {
    const auto complete = filled(/*all=*/true).options;  // two keys of the file may correspond to one option of ours
    for (const auto& o : network_.options) {
      if (o.rule == HubOption::Rule::Open || !o.compared) continue;
      const auto* node = option_in(is_open(o) ? complete : resolved_, o.option);
      if (node == nullptr || !node->is_scalar() || agrees(o, node->scalar())) continue;
      lines.push_back(o.key + " is " + o.theirs + ", model." + o.option + " is " + node->scalar());
      if (!is_open(o)) keys.push_back("model." + o.option + "=" + o.value.scalar());
    }
  }

 private:
  const HubNetwork& network_;
  PartConfig model_;
  ConfigNode resolved_;
  bool named_size_ = false;
};

[[noreturn]] void refuse(const std::string& config, const std::vector<std::string>& lines, const std::vector<std::string>& keys) {
  throw Error(ErrorKind::Checkpoint, "weights", config + " is of another network: " + join(lines, "; "),
              (keys.size() == lines.size() ? "set " + join(keys, " ") + "; " : std::string()) +
                  "model.weights_strict=false loads the weights nevertheless");
}

// Throws if `strict`, otherwise only warns.
void check_network(const std::string& config, const std::vector<std::string>& lines, const std::vector<std::string>& keys, bool strict) {
  if (lines.empty()) return;
  if (strict) refuse(config, lines, keys);
  log_warning("weights: ", config, " is of another network: ", join(lines, "; "));
}

std::string type_line(const Json& file, const std::string& name) {
  const auto* type = file.find("model_type");
  return (type != nullptr ? "model_type is " + type->text(kHubConfig)
                          : "architecture is " + file.at("architecture", kHubConfig).text(kHubConfig)) +
         (name.empty() ? ", and the networks that are known here are " + join(hub_model_types()) : ", model.name is " + name);
}

}  // namespace

namespace detail {

std::filesystem::path file_of_weights(const std::filesystem::path& weights, const char* name) {
  std::error_code error;
  const auto file = (std::filesystem::is_directory(weights, error) ? weights : weights.parent_path()) / name;
  return std::filesystem::is_regular_file(file, error) ? file : std::filesystem::path();
}

std::filesystem::path hub_config_of(const std::filesystem::path& weights) { return file_of_weights(weights, kHubConfig); }

bool is_strict(const PartConfig& model) { return option_text(model.options, "weights_strict") != "false"; }

PartConfig with_hub_options(PartConfig model, const Parts& parts, bool all) {
  const auto weights = option_text(model.options, "weights");
  const auto path = weights.empty() ? std::filesystem::path() : hub_config_of(weights);
  if (path.empty() || !is_compared(model.name, parts)) return model;
  try {
    const auto file = load_json(path, kHubLimits);
    const auto network = hub_network(file);
    if (!network || network->model.empty()) return model;
    const Completion completion(*network, model, parts);
    return completion.same_model() ? completion.filled(all) : model;
  } catch (const Error&) {
    return model;  // the check of the complete model reports the error
  }
}

void fill_model_from_weights(ConfigNode& config, const Parts& parts) {
  auto* node = config.find("model");
  if (node == nullptr || !node->is_map()) return;
  PartConfig model;
  model.options = *node;
  const auto* name = node->find("name");
  if (name != nullptr && name->is_scalar()) model.name = name->scalar();
  if (name != nullptr && model.name.empty()) return;  // the table reports the empty name
  model.options.erase("name");
  const auto filled = with_hub_options(model, parts, /*all=*/false);
  if (model.name.empty()) {
    const auto weights = option_text(model.options, "weights");
    if (filled.name.empty() && !weights.empty() && !hub_config_of(weights).empty())
      with_weights_options(model, parts, weights);  // throws the detailed error
    if (!filled.name.empty()) node->set("name", ConfigNode(filled.name));
  }
  for (const auto& member : filled.options.members()) node->put(member);
}

}  // namespace detail

PartConfig with_weights_options(PartConfig model, const Parts& parts, const std::string& weights, bool all) {
  const auto path = weights.empty() ? std::filesystem::path() : detail::hub_config_of(weights);
  check(!model.name.empty() || !path.empty(), ErrorKind::Usage, "model", "no model is named, and ",
        weights.empty() ? std::string("there are no weights") : weights + " has no config.json that describes one",
        "; allowed: ", join(parts.models.names()));
  if (path.empty() || !is_compared(model.name, parts)) return model;
  const bool strict = detail::is_strict(model);
  const auto file = described(path);
  check(file || !model.name.empty(), ErrorKind::Usage, "model", "no model is named, and ", path.string(), " does not describe one");
  if (!file) return model;
  const auto network = hub_network(*file);
  std::vector<std::string> lines, keys;
  if (!network) {
    if (model.name.empty()) refuse(path.string(), {type_line(*file, "")}, {});
    check_network(path.string(), {type_line(*file, model.name)}, {}, strict);
    return model;
  }
  lines = network->foreign;
  if (network->model.empty()) {  // our network does not support this size
    if (model.name.empty()) refuse(path.string(), lines, {});
    check_network(path.string(), lines, {}, strict);
    return model;
  }
  const Completion completion(*network, model, parts);
  if (!completion.same_model()) {
    check_network(path.string(), {type_line(*file, model.name)}, {"model.name=" + network->model}, strict);
    return model;
  }
  completion.compare(lines, keys);
  check_network(path.string(), lines, keys, strict);
  return completion.filled(all);
}

}  // namespace npu_train
