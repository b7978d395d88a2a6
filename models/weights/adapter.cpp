#include "npu_train/models/lora.hpp"

#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "models/families.hpp"
#include "models/weights/adapter_parts.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/name_pattern.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/io/pickle.hpp"
#include "npu_train/nn/module_state.hpp"

namespace npu_train {
namespace {

constexpr const char* kAdapter = "adapter";
constexpr const char* kAdapterConfigFile = "adapter_config.json";
constexpr JsonLimits kAdapterConfigLimits{.depth = 16, .values = 100'000, .max_bytes = uint64_t{4} << 20};

// Rejects an adapter in which the key is switched on, because such an adapter computes more than W + scale B A.
void must_be_off(const Json& config, const char* key, const std::string& where) {
  const auto* value = config.find(key);
  if (value == nullptr || value->is_null()) return;
  const bool off = (value->kind() == Json::Kind::Boolean && !value->boolean(where)) ||
                   (value->is_object() && value->members(where).empty()) || (value->is_array() && value->items(where).empty()) ||
                   (value->is_text() && value->text(where) == "none");
  check(off, ErrorKind::Checkpoint, kAdapter, where, ": ", key, " is ", value->dump(0),
        "; only adapters W + scale B A are supported, with ", key, " off");
}

// Rejects initialisations (PiSSA, LoftQ ...) that also modify the base weights.
void check_initialisation(const Json& config, const std::string& where) {
  const auto* init = config.find("init_lora_weights");
  if (init == nullptr || !init->is_text()) return;
  const auto& name = init->text(where);
  check(!name.starts_with("pissa") && name != "olora" && name != "loftq" && name != "corda", ErrorKind::Checkpoint, kAdapter, where,
        ": init_lora_weights is ", name,
        ", which changes the weights of the base too; hint: save the adapter for the unchanged base, with "
        "path_initial_model_for_weight_conversion of PEFT's save_pretrained");
}

LoraOptions read_adapter_options(const std::filesystem::path& folder) {
  const auto where = (folder / kAdapterConfigFile).string();
  const auto config = load_json(folder / kAdapterConfigFile, kAdapterConfigLimits);
  const auto& type = config.at("peft_type", where).text(where);
  check(type == "LORA", ErrorKind::Checkpoint, kAdapter, where, ": peft_type is ", type, "; allowed: LORA");
  for (const char* key : {"use_dora", "bias", "lora_bias", "rank_pattern", "alpha_pattern", "target_parameters", "layer_replication",
                          "trainable_token_indices", "use_qalora"})
    must_be_off(config, key, where);
  check_initialisation(config, where);
  LoraOptions out;
  out.rank = config.at("r", where).integer(where);
  out.alpha = config.at("lora_alpha", where).number(where);
  if (const auto* dropout = config.find("lora_dropout"); dropout != nullptr && !dropout->is_null()) out.dropout = dropout->number(where);
  check(out.rank >= 1 && out.rank <= (1 << 16) && std::isfinite(out.alpha) && out.alpha > 0 && out.dropout >= 0 && out.dropout < 1,
        ErrorKind::Checkpoint, kAdapter, where, ": r is ", out.rank, ", lora_alpha ", out.alpha, ", lora_dropout ", out.dropout,
        "; allowed: r from 1 to ", 1 << 16, ", lora_alpha above 0, lora_dropout at least 0 and below 1");
  if (const auto* stabilised = config.find("use_rslora"); stabilised != nullptr && !stabilised->is_null() && stabilised->boolean(where))
    out.alpha *= std::sqrt(static_cast<double>(out.rank));  // rsLoRA has the scale alpha / sqrt(rank)
  return out;
}

NamedTensors read_adapter_tensors(const std::filesystem::path& folder) {
  if (const auto file = folder / "adapter_model.safetensors"; std::filesystem::exists(file)) return load_safetensors(file);
  const auto file = folder / "adapter_model.bin";
  check(std::filesystem::exists(file), ErrorKind::Checkpoint, kAdapter, folder.string(),
        ": there is neither adapter_model.safetensors nor adapter_model.bin next to ", kAdapterConfigFile);
  return load_pth(file).tensors;
}

// Maps names in a file to those of a model.
class ParametersByAnyName {
 public:
  explicit ParametersByAnyName(const ParameterSet& parameters) : parameters_(parameters) {
    std::vector<std::string> names;
    for (const auto& p : parameters) names.push_back(p.name);
    family_ = detail::known_naming(names).family;
  }

  // Returns the parameter with that name in any naming, or nullptr. `transposed`: the file stores the transpose.
  const Parameter* find(const std::string& name, bool& transposed) const {
    transposed = false;
    if (const auto* own = parameters_.find(name)) return own;
    if (family_ == nullptr) return nullptr;
    for (const auto& naming : family_->namings) {
      const auto* p = parameters_.find(naming.ours(name));
      // Skips the second name of a tied tensor, because an adapter with that name belongs to a separate head.
      if (p == nullptr || !naming.theirs(p->name).ends_with(name)) continue;
      transposed = naming.transposes(name);
      return p;
    }
    return nullptr;
  }

 private:
  const ParameterSet& parameters_;
  const detail::ModelFamily* family_;
};

void check_adapter_sizes(const std::string& where, const std::string& name, const at::Tensor& tensor, std::vector<int64_t> sizes) {
  check(tensor.sizes() == at::IntArrayRef(sizes) && tensor.is_floating_point(), ErrorKind::Checkpoint, kAdapter, where, ": '", name,
        "' is ", tensor.scalar_type(), " ", tensor.sizes(), "; this model needs numbers of ", at::IntArrayRef(sizes));
}

// Stores the tensors of a file under the names of a model.
class AdapterReader {
 public:
  AdapterReader(const ParameterSet& parameters, const std::vector<std::string>& linears, std::string where, LoraOptions options)
      : names_(parameters), linears_(linears), where_(std::move(where)) {
    out_.options = std::move(options);
  }

  void take(const std::string& name, const at::Tensor& tensor) {
    const auto [layer, half] = detail::adapter_name(name);
    bool transposed = false;
    const auto* found = names_.find(half.empty() ? layer : layer + ".weight", transposed);
    const auto ours = found == nullptr ? "" : half.empty() ? found->name : layer_of(found->name);
    const bool known = found != nullptr && (half.empty() || std::find(linears_.begin(), linears_.end(), ours) != linears_.end());
    check(known, ErrorKind::Checkpoint, kAdapter, where_, ": '", name, "' is of no ", half.empty() ? "parameter" : "linear layer",
          " of this model, which has ", npu_train::detail::first_few(linears_, 6),
          "; hint: the sizes and options of the model must be those of the adapter's base (a ViT needs qkv: split)");
    check(names_taken_.insert(ours + half).second, ErrorKind::Checkpoint, kAdapter, where_, ": '", name, "' is a second tensor for '", ours,
          "'");
    if (half.empty()) {
      const auto value = transposed && tensor.dim() == 2 ? tensor.t() : tensor;
      check_adapter_sizes(where_, name, value, found->value.sizes().vec());
      out_.options.also_train.push_back(ours);
      out_.tensors.emplace_back(ours, value);
      return;
    }
    const bool first = half == ".lora_A.weight";
    const auto rank = out_.options.rank;
    check_adapter_sizes(where_, name, tensor, first ? std::vector{rank, found->value.size(1)} : std::vector{found->value.size(0), rank});
    out_.tensors.emplace_back(ours + half, tensor);
    if (++halves_[ours] == 2) out_.options.targets.push_back(ours);
  }

  Adapter finish() {
    check(!halves_.empty(), ErrorKind::Checkpoint, kAdapter, where_, ": there are no tensors of an adapter");
    for (const auto& [layer, count] : halves_)
      check(count == 2, ErrorKind::Checkpoint, kAdapter, where_, ": of the layer '", layer, "' one of lora_A and lora_B is missing");
    return std::move(out_);
  }

 private:
  ParametersByAnyName names_;
  const std::vector<std::string>& linears_;
  std::string where_;
  Adapter out_;
  std::set<std::string> names_taken_;
  std::map<std::string, int> halves_;  // number of matrices per layer
};

}  // namespace

namespace detail {

AdapterName adapter_name(std::string name) {
  constexpr std::string_view wrapper = "base_model.model.";
  if (name.starts_with(wrapper)) name.erase(0, wrapper.size());
  for (const std::string half : {"lora_A", "lora_B"})
    for (const std::string end : {".weight", ".default.weight"})
      if (name.ends_with("." + half + end)) return {name.substr(0, name.size() - half.size() - end.size() - 1), "." + half + ".weight"};
  return {name, ""};
}

LoraOptions joined_options(const LoraOptions& given, const Adapter& adapter) {
  auto out = adapter.options;
  const auto must_agree = [&](const char* key, double here, double there) {
    check(here == 0 || here == there, ErrorKind::Usage, kAdapter, "lora.", key, " is ", here, ", that of the adapter in ", given.from,
          " is ", there, "; hint: omit ", key, " with from");
  };
  must_agree("rank", static_cast<double>(given.rank), static_cast<double>(out.rank));
  must_agree("alpha", given.alpha, out.alpha);
  std::set<std::string> chosen;
  for (const auto& pattern : given.targets)
    for (const auto& name : matching_names(out.targets, pattern)) chosen.insert(name);
  check(given.targets.empty() || chosen.size() == out.targets.size(), ErrorKind::Usage, kAdapter, "lora.targets selects ", chosen.size(),
        " of the ", out.targets.size(), " layers of the adapter in ", given.from, "; hint: omit targets with from");
  out.dropout = given.dropout;  // dropout rate of this training, not of the one that made the adapter
  out.also_train.insert(out.also_train.end(), given.also_train.begin(), given.also_train.end());
  return out;
}

void copy_adapter(const Adapter& adapter, const ParameterSet& parameters) {
  c10::AutoGradMode no_grad(false);
  for (const auto& [name, tensor] : adapter.tensors) parameters.find(name)->value.copy_(tensor);
}

}  // namespace detail

bool is_adapter_folder(const std::filesystem::path& folder) {
  return std::filesystem::is_directory(folder) && std::filesystem::exists(folder / kAdapterConfigFile);
}

Adapter load_adapter(const std::filesystem::path& folder, const torch::nn::Module& module) {
  check(is_adapter_folder(folder), ErrorKind::Data, kAdapter, folder.string(), ": is not a folder with an ", kAdapterConfigFile);
  try {
    const auto parameters = parameters_of(module);
    const auto linears = linear_layers(module);
    AdapterReader reader(parameters, linears, folder.string(), read_adapter_options(folder));
    for (const auto& [name, tensor] : read_adapter_tensors(folder)) reader.take(name, tensor);
    return reader.finish();
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Checkpoint) throw;
    throw Error(ErrorKind::Checkpoint, kAdapter, e.what(), "", std::current_exception());
  }
}

}  // namespace npu_train
