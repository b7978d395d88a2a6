#include "npu_train/models/lora.hpp"

#include <torch/nn/module.h>

#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "models/weights/adapter_parts.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/name_pattern.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/nn/layers.hpp"
#include "npu_train/nn/module_state.hpp"

namespace npu_train {
namespace {

constexpr const char* kLora = "lora";
constexpr int64_t kUsualRank = 8;

// Visits the linear layers. Does not descend into a Linear, whose children are its adapter.
void walk_linear_layers(const torch::nn::Module& module, const std::string& path,
                        const std::function<void(const std::string&, const std::shared_ptr<torch::nn::Module>&)>& found) {
  for (const auto& child : module.named_children()) {
    const auto name = path + child.key();
    if (child.value()->as<Linear>() != nullptr)
      found(name, child.value());
    else
      walk_linear_layers(*child.value(), name + ".", found);
  }
}

struct NamedLinear {
  std::string name;
  Linear* layer;
};

// Lists each layer once, under its first name.
std::vector<NamedLinear> named_linears_of(const torch::nn::Module& module) {
  std::vector<NamedLinear> out;
  std::set<const Linear*> seen;
  walk_linear_layers(module, "", [&](const std::string& name, const std::shared_ptr<torch::nn::Module>& found) {
    auto* layer = found->as<Linear>();
    if (seen.insert(layer).second) out.push_back({name, layer});
  });
  return out;
}

std::vector<std::string> parameter_names_of(const ParameterSet& parameters) {
  std::vector<std::string> out;
  for (const auto& p : parameters) out.push_back(p.name);
  return out;
}

bool is_adapter_half(std::string_view name) { return name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight"); }

}  // namespace

const ConfigTable<LoraOptions>& LoraOptions::config_table() {
  using T = LoraOptions;
  static const auto table =
      ConfigTable<T>("lora")
          .field("rank", &T::rank, "of the two matrices of an adapter; 0: 8, or that of from", between(0, 1 << 16))
          .field("alpha", &T::alpha, "the product is scaled by alpha / rank; 0: the rank, or that of from", at_least(0))
          .field("dropout", &T::dropout, "rate on the input of an adapter, in training", between(0, 0.999))
          .field("targets", &T::targets, "linear layers that get an adapter: parts of their names, * matches any text")
          .field("also_train", &T::also_train, "parameters that are trained too: parts of their names, as for targets")
          .field("from", &T::from, "folder with an adapter to start with, in PEFT's layout")
          .synonym("r", "rank")
          .synonym("lora_alpha", "alpha")
          .synonym("lora_dropout", "dropout")
          .synonym("target_modules", "targets")
          .synonym("modules_to_save", "also_train");
  return table;
}

void check_lora_options(const LoraOptions& o) {
  check(o.rank >= 0 && std::isfinite(o.alpha) && o.alpha >= 0 && o.dropout >= 0 && o.dropout < 1, ErrorKind::Usage, kLora, "rank ", o.rank,
        ", alpha ", o.alpha, ", dropout ", o.dropout, "; allowed: at least 0, dropout below 1");
  check(!o.targets.empty() || !o.from.empty(), ErrorKind::Usage, kLora,
        "targets is empty; give parts of the names of linear layers, such as [attention.*]; hint: npu_tool summary CONFIG --layers lists "
        "the names");
}

std::string LoraReport::str() const {
  return str_cat("lora: ", layers.size(), layers.size() == 1 ? " layer" : " layers", " with adapters of rank ", options.rank, ", ",
                 with_commas(trained), " of ", with_commas(total), " parameters are trained");
}

std::vector<std::string> linear_layers(const torch::nn::Module& module) {
  std::vector<std::string> out;
  for (const auto& linear : named_linears_of(module)) out.push_back(linear.name);
  return out;
}

LoraReport apply_lora(torch::nn::Module& module, const LoraOptions& given) {
  check_lora_options(given);
  const auto linears = named_linears_of(module);
  check(!linears.empty(), ErrorKind::Usage, kLora, "the model has no layers npu_train::Linear, which adapters need");
  for (const auto& [name, layer] : linears) check(!layer->has_adapter(), ErrorKind::Usage, kLora, "'", name, "' has an adapter already");
  const auto before = parameters_of(module);
  std::optional<Adapter> start;
  LoraReport report{.options = given};
  auto& o = report.options;
  if (!given.from.empty()) {
    start = load_adapter(given.from, module);
    o = detail::joined_options(given, *start);
  }
  if (o.rank == 0) o.rank = kUsualRank;
  if (o.alpha == 0) o.alpha = static_cast<double>(o.rank);
  const auto targets = selected_names("lora.targets", "linear layer", o.targets, linear_layers(module));
  const auto trained = selected_names("lora.also_train", "parameter", o.also_train, parameter_names_of(before));

  for (const auto& p : before) p.value.set_requires_grad(trained.count(p.name) != 0);
  for (const auto& [name, layer] : linears)
    if (targets.count(name) != 0) {
      layer->add_adapter(o.rank, o.alpha / static_cast<double>(o.rank), o.dropout);
      report.layers.push_back(name);
    }
  const auto after = parameters_of(module);
  if (start) detail::copy_adapter(*start, after);
  for (const auto& p : after) {
    report.total += p.value.numel();
    if (p.value.requires_grad()) report.trained += p.value.numel();
  }
  return report;
}

LoraReport apply_lora(Model& model, const LoraOptions& options) {
  check(model.module != nullptr, ErrorKind::Usage, kLora, "the model '", model.name, "' has no module");
  return apply_lora(*model.module, options);
}

int64_t merge_lora(torch::nn::Module& module) {
  int64_t count = 0;
  for (const auto& [name, layer] : named_linears_of(module)) {
    count += layer->has_adapter() ? 1 : 0;
    layer->merge_adapter();
  }
  return count;
}

int64_t merge_lora(Model& model) {
  check(model.module != nullptr, ErrorKind::Usage, kLora, "the model '", model.name, "' has no module");
  return merge_lora(*model.module);
}

bool has_lora(const NamedTensors& tensors) {
  for (const auto& [name, value] : tensors)
    if (is_adapter_half(name)) return true;
  return false;
}

NamedTensors merged_lora(const NamedTensors& tensors, double scale) {
  std::map<std::string, at::Tensor> halves;
  for (const auto& [name, value] : tensors)
    if (is_adapter_half(name)) halves.emplace(name, value);
  NamedTensors out;
  size_t merged = 0;
  for (const auto& [name, value] : tensors) {
    if (is_adapter_half(name)) continue;
    const auto layer = name.ends_with(".weight") ? name.substr(0, name.size() - std::string_view(".weight").size()) : "";
    const auto a = halves.find(layer + ".lora_A.weight"), b = halves.find(layer + ".lora_B.weight");
    if (layer.empty() || a == halves.end() || b == halves.end()) {
      out.emplace_back(name, value);
      continue;
    }
    const bool fits = value.dim() == 2 && a->second.dim() == 2 && b->second.dim() == 2 && a->second.size(1) == value.size(1) &&
                      b->second.size(0) == value.size(0) && b->second.size(1) == a->second.size(0);
    check(fits, ErrorKind::Checkpoint, kLora, "'", layer, "' has a weight of ", value.sizes(), ", lora_A of ", a->second.sizes(),
          " and lora_B of ", b->second.sizes(), ", which do not belong together");
    out.emplace_back(name, detail::with_adapter(value, a->second, b->second, scale));
    merged += 2;
  }
  check(merged == halves.size(), ErrorKind::Checkpoint, kLora, "of ", halves.size(), " tensors of adapters only ", merged,
        " have their layer and their other half");
  return out;
}

}  // namespace npu_train
