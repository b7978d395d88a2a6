// Writes adapters in PEFT's layout.
#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "models/families.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/name_pattern.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/models/lora.hpp"

namespace npu_train {
namespace {

constexpr const char* kAdapterWriter = "adapter";
constexpr std::string_view kWeightEnd = ".weight", kFirstEnd = ".lora_A.weight", kSecondEnd = ".lora_B.weight";
const std::string kPeftWrapper = "base_model.model.";

std::string without_tail(const std::string& name, std::string_view end) { return name.substr(0, name.size() - end.size()); }

std::string last_part_of(const std::string& module) { return module.substr(module.rfind('.') + 1); }

// Translates a model's names to those of Hugging Face's network. An unknown network keeps its names.
class AdapterNames {
 public:
  explicit AdapterNames(const std::vector<std::string>& names) : family_(detail::known_naming(names).family) {
    if (family_ == nullptr) return;
    for (const auto& naming : family_->namings)
      if (std::find(naming.libraries.begin(), naming.libraries.end(), "hf") != naming.libraries.end()) naming_ = &naming;
  }

  // Returns "" if the network does not have the tensor.
  std::string find(const std::string& name) const { return naming_ == nullptr ? name : naming_->theirs(name); }
  std::string of(const std::string& name) const {
    auto theirs = find(name);
    check(!theirs.empty(), ErrorKind::Usage, kAdapterWriter, "'", name, "' has no name in the network of Hugging Face's transformers");
    return theirs;
  }
  bool transposes(const std::string& theirs) const { return naming_ != nullptr && naming_->transposes(theirs); }
  bool is_decoder() const { return family_ != nullptr && family_->decoder; }

 private:
  const detail::ModelFamily* family_ = nullptr;
  const detail::Naming* naming_ = nullptr;
};

struct WrittenAdapter {
  NamedTensors tensors{};
  std::vector<std::string> layers{}, saved{};  // names of modules with an adapter, and of modules that are stored completely
  bool transposed = true;                      // true: all of these layers store their matrices as [in, out]
};

// Collects the trained modules, which PEFT stores completely. For a layer with an adapter, PEFT stores only the adapter.
void add_saved_modules(const LoraOptions& options, const NamedTensors& network, const AdapterNames& names, WrittenAdapter& out) {
  std::vector<std::string> ours;
  for (const auto& [name, tensor] : network) ours.push_back(name);
  std::set<std::string> modules;
  for (const auto& name : selected_names("lora.also_train", "parameter", options.also_train, ours)) {
    const auto theirs = names.of(name);
    const auto module = theirs.substr(0, theirs.rfind('.'));
    check(theirs.find('.') != std::string::npos && std::find(out.layers.begin(), out.layers.end(), module) == out.layers.end(),
          ErrorKind::Usage, kAdapterWriter, "'", name,
          "' is trained and its layer has an adapter, or it belongs to no layer; PEFT stores complete layers without an adapter only; "
          "hint: npu_tool weights "
          "without --as peft writes all weights, with merged adapters");
    modules.insert(module);
  }
  for (const auto& [name, tensor] : network) {
    const auto theirs = names.find(name);
    const auto owner = std::find_if(modules.begin(), modules.end(), [&](const auto& m) { return theirs.starts_with(m + "."); });
    if (owner == modules.end()) continue;
    const bool turned = tensor.dim() == 2 && names.transposes(theirs);
    out.tensors.emplace_back(kPeftWrapper + theirs, (turned ? tensor.t() : tensor).contiguous());
  }
  out.saved.assign(modules.begin(), modules.end());
}

// Returns the last parts of the layers' names, as PEFT does, if they select exactly these layers; otherwise the complete names.
std::vector<std::string> target_modules(const std::vector<std::string>& layers, const std::vector<std::string>& all) {
  const std::set<std::string> chosen(layers.begin(), layers.end());
  std::set<std::string> ends;
  for (const auto& layer : layers) ends.insert(last_part_of(layer));
  for (const auto& module : all)
    if (chosen.count(module) == 0 && ends.count(last_part_of(module)) != 0) return layers;
  return {ends.begin(), ends.end()};
}

Json peft_config(const WrittenAdapter& written, const std::vector<std::string>& modules, const LoraOptions& options,
                 const std::string& base, bool is_decoder) {
  const bool is_whole = options.alpha == std::floor(options.alpha) && options.alpha < 1e15;
  return Json::object({{"peft_type", "LORA"},
                       {"task_type", is_decoder ? Json("CAUSAL_LM") : Json()},
                       {"base_model_name_or_path", base},
                       {"r", options.rank},
                       {"lora_alpha", is_whole ? Json(static_cast<int64_t>(options.alpha)) : Json(options.alpha)},
                       {"lora_dropout", options.dropout},
                       {"target_modules", detail::json_list(target_modules(written.layers, modules))},
                       {"modules_to_save", written.saved.empty() ? Json() : detail::json_list(written.saved)},
                       {"bias", "none"},
                       {"fan_in_fan_out", written.transposed},
                       {"inference_mode", true},
                       {"init_lora_weights", true},
                       {"use_rslora", false},
                       {"use_dora", false},
                       {"rank_pattern", Json::object()},
                       {"alpha_pattern", Json::object()}});
}

}  // namespace

void save_adapter(const std::filesystem::path& folder, const NamedTensors& tensors, const LoraOptions& options, const std::string& base) {
  check(has_lora(tensors), ErrorKind::Usage, kAdapterWriter, "the model has no adapters; hint: train it with model.lora");
  check(options.rank >= 1 && std::isfinite(options.alpha) && options.alpha > 0, ErrorKind::Usage, kAdapterWriter, "rank ", options.rank,
        " and alpha ", options.alpha, "; both must be known, and more than 0");
  NamedTensors network;
  std::vector<std::string> ours;
  for (const auto& [name, tensor] : tensors)
    if (!name.ends_with(kFirstEnd) && !name.ends_with(kSecondEnd)) network.emplace_back(name, tensor), ours.push_back(name);
  const AdapterNames names(ours);
  WrittenAdapter out;
  for (const auto& [name, tensor] : tensors) {
    const auto end = name.ends_with(kFirstEnd) ? kFirstEnd : name.ends_with(kSecondEnd) ? kSecondEnd : "";
    if (end.empty()) continue;
    const auto theirs = names.of(without_tail(name, end) + std::string(kWeightEnd));
    const auto module = without_tail(theirs, kWeightEnd);
    check(tensor.dim() == 2 && tensor.size(end == kFirstEnd ? 0 : 1) == options.rank, ErrorKind::Checkpoint, kAdapterWriter, "'", name,
          "' is ", tensor.sizes(), ", and the rank is ", options.rank);
    out.tensors.emplace_back(kPeftWrapper + module + std::string(end), tensor);
    if (end == kFirstEnd) out.layers.push_back(module), out.transposed = out.transposed && names.transposes(theirs);
  }
  add_saved_modules(options, network, names, out);
  std::vector<std::string> modules;
  for (const auto& name : ours)
    if (const auto theirs = names.find(name); theirs.ends_with(kWeightEnd)) modules.push_back(without_tail(theirs, kWeightEnd));
  make_folder(folder);
  save_safetensors(folder / "adapter_model.safetensors", out.tensors, {{"format", "pt"}});
  save_json(folder / "adapter_config.json", peft_config(out, modules, options, base, names.is_decoder()));
}

}  // namespace npu_train
