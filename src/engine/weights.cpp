#include "npu_train/engine/weights.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include "engine/config_rules.hpp"
#include "engine/head_classes.hpp"
#include "engine/hub_config.hpp"
#include "engine/published_weights.hpp"
#include "engine/saved_weights.hpp"
#include "engine/weight_shards.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/io/pickle.hpp"
#include "npu_train/models/lora.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/train/checkpoint_store.hpp"

namespace npu_train {
namespace {

constexpr const char* kCheckpointWeights = "weights";

/// Returns `model.lora` of the run that wrote a checkpoint, with defaults filled in.
LoraOptions lora_of(const std::string& checkpoint) {
  const auto config = load_checkpoint_config(checkpoint);
  const auto* model = config.find("model");
  const auto* lora = model != nullptr ? model->find("lora") : nullptr;
  check(
      lora != nullptr, ErrorKind::Checkpoint, kCheckpointWeights, checkpoint,
      ": there are adapters, and the configuration has no model.lora, so that their scale is not known; hint: the program that trained the "
      "model merges them with npu_train::merge_lora before it saves");
  try {
    auto out = bind<LoraOptions>(*lora, "model.lora");
    check(out.rank >= 1 && out.alpha > 0, ErrorKind::Checkpoint, kCheckpointWeights, checkpoint, ": model.lora has the rank ", out.rank,
          " and alpha ", out.alpha);
    return out;
  } catch (const Error& e) {
    throw Error(ErrorKind::Checkpoint, kCheckpointWeights, checkpoint + ": " + e.what(), "", std::current_exception());
  }
}

// Prefixes of the averages in a file that has two sets, in timm's order of preference.
constexpr std::array<const char*, 2> kAverages = {"state_dict_ema.", "model_ema."};

std::string without_dot(const std::string& key) { return key.substr(0, key.size() - 1); }

// Keeps one of the two sets of weights in a file that stores averages under a key of their own, next to the plain weights.
WeightsFile one_set(WeightsFile file, WeightSet set, const std::string& path) {
  const auto has = [&](const std::string& key) {
    return std::any_of(file.tensors.begin(), file.tensors.end(), [&](const auto& t) { return t.first.starts_with(key); });
  };
  const auto found = std::find_if(kAverages.begin(), kAverages.end(), has);
  check(set != WeightSet::Ema || found != kAverages.end(), ErrorKind::Checkpoint, "weights", path,
        ": has no averages (state_dict_ema, model_ema); hint: model.weights_key=auto or model, --weights plain");
  if (found == kAverages.end()) return file;
  const std::string key = *found;
  file.averages = set != WeightSet::Plain;
  NamedTensors chosen;
  const auto is_average = [](const std::string& name) {
    return std::any_of(kAverages.begin(), kAverages.end(), [&](const char* prefix) { return name.starts_with(prefix); });
  };
  for (auto& [name, value] : file.tensors) {
    if (file.averages && name.starts_with(key)) chosen.emplace_back(name.substr(key.size()), value);
    if (!file.averages && !is_average(name)) chosen.emplace_back(name, value);
  }
  file.tensors = std::move(chosen);
  file.chosen = file.averages ? "the averages '" + without_dot(key) + "' are taken; model.weights_key=model takes the other weights"
                              : "the averages '" + without_dot(key) + "' are not taken";
  return file;
}

// Returns the weights of a checkpoint with its adapters merged.
NamedTensors merged(const std::string& checkpoint, const NamedTensors& tensors) {
  if (!has_lora(tensors)) return tensors;
  const auto lora = lora_of(checkpoint);
  return merged_lora(tensors, lora.alpha / static_cast<double>(lora.rank));
}

WeightsFile weights_of_checkpoint(const std::string& checkpoint, WeightSet set) {
  auto saved = detail::saved_weights(checkpoint, set);
  WeightsFile out{.tensors = merged(checkpoint, saved.tensors), .averages = saved.averages, .chosen = {}, .checkpoint = checkpoint};
  if (saved.averages) out.chosen = "the averages are taken";
  if (!saved.averages && saved.has_averages) out.chosen = "the averages are not taken";
  out.classes = class_names_of(read_checkpoint_meta(checkpoint));
  return out;
}

// Returns whether these are the averages of a checkpoint, which stores them under the names average/PARAMETER and buffer/BUFFER.
bool are_checkpoint_averages(const NamedTensors& tensors) {
  return !tensors.empty() && std::all_of(tensors.begin(), tensors.end(),
                                         [](const auto& t) { return t.first.starts_with("average/") || t.first.starts_with("buffer/"); });
}

WeightsFile weights_of_safetensors(const std::filesystem::path& file, WeightSet set) {
  auto tensors = load_safetensors(file);
  if (!are_checkpoint_averages(tensors)) return one_set({.tensors = std::move(tensors)}, set, file.string());
  const auto folder = std::filesystem::absolute(file).parent_path();
  check(std::filesystem::exists(folder / "manifest.json"), ErrorKind::Checkpoint, kCheckpointWeights, file.string(),
        ": has the averages of a checkpoint, without the rest of it; hint: name the checkpoint's folder");
  check(set != WeightSet::Plain, ErrorKind::Usage, kCheckpointWeights, file.string(), ": has only the averages; hint: name the folder ",
        folder.string(), " for the plain weights");
  return weights_of_checkpoint(find_checkpoint(folder.string()), WeightSet::Ema);
}

PartConfig resolved_model(const PartConfig& model, const Parts& parts) {
  ConfigProblems problems;
  auto out = parts.models.resolve(model, "model", problems);
  problems.throw_if_any();
  return out;
}

// Compares the model's number of heads with that in a file of nanoGPT, which contains it next to the tensors. Shapes do not determine it.
void check_nanogpt_heads(const WeightsFile& file, const PartConfig& model, const std::string& path) {
  const auto heads = file.integers.find("model_args.n_head");
  const auto here = detail::option_text(model.options, "heads");
  if (heads == file.integers.end() || here.empty() || here == std::to_string(heads->second)) return;
  const auto message = str_cat(path, ": model_args.n_head is ", heads->second, ", model.heads is ", here);
  if (detail::is_strict(model)) throw Error(ErrorKind::Checkpoint, "weights", message, str_cat("set model.heads=", heads->second));
  log_warning("weights: ", message);
}

}  // namespace

WeightSet weight_set_of(const std::string& name) {
  if (name == "auto") return WeightSet::Auto;
  if (name == "plain" || name == "model") return WeightSet::Plain;
  check(name == "ema", ErrorKind::Usage, kCheckpointWeights, "'", name, "' is not one of a file's sets of weights");
  return WeightSet::Ema;
}

NamedTensors checkpoint_weights(const std::string& checkpoint, WeightSet set) {
  return merged(checkpoint, detail::saved_weights(checkpoint, set).tensors);
}

void save_checkpoint_adapter(const std::string& from, const std::string& folder, WeightSet set) {
  const auto checkpoint = find_checkpoint(from);
  const auto tensors = detail::saved_weights(checkpoint, set).tensors;
  check(has_lora(tensors), ErrorKind::Usage, kCheckpointWeights, checkpoint, ": has no adapters; hint: train with model.lora");
  const auto config = load_checkpoint_config(checkpoint);
  const auto* base = config.find("model") != nullptr ? config.find("model")->find("weights") : nullptr;
  save_adapter(folder, tensors, lora_of(checkpoint), base != nullptr && base->is_scalar() ? base->scalar() : "");
}

WeightsFile read_weights(const std::string& path, WeightSet set) {
  if (detail::is_published_name(path))
    return read_weights(detail::cached_weights(detail::published_weights(path), detail::hub_cache()).string(), set);
  const std::filesystem::path file(path);
  check(std::filesystem::exists(file), ErrorKind::Data, "weights", path, ": no such file");
  if (std::filesystem::is_directory(file)) {
    if (const auto inside = detail::weights_in_folder(file); !inside.empty()) return read_weights(inside.string(), set);
    if (is_adapter_folder(file))
      throw Error(ErrorKind::Usage, "weights", path + ": is an adapter, not the weights of a network",
                  "give the weights of its base, and the adapter as model.lora.from");
    return weights_of_checkpoint(find_checkpoint(path), set);
  }
  if (is_safetensors_name(file)) return weights_of_safetensors(file, set);
  if (is_pth_name(file)) {
    auto pth = load_pth(file);
    return one_set({.tensors = std::move(pth.tensors), .integers = std::move(pth.integers)}, set, path);
  }
  if (detail::is_weight_index(file)) return one_set({.tensors = detail::load_weight_shards(file)}, set, path);
  throw Error(
      ErrorKind::Data, "weights", path + ": unknown file format",
      "supported formats are .safetensors, PyTorch's .pth, .pt, .bin, .ckpt and .pth.tar, an index of several files (*.index.json), "
      "checkpoint folders of npu_train and model folders of Hugging Face");
}

NamedTensors read_weights_file(const std::string& path, WeightSet set) { return read_weights(path, set).tensors; }

WeightsReport load_weights_file(Model& model, const std::string& path, const WeightsFileOptions& options) {
  return load_weights_file(model, read_weights(path, options.set), path, options);
}

WeightsReport load_weights_file(Model& model, WeightsFile file, const std::string& path, const WeightsFileOptions& options) {
  check(!has_lora(file.tensors) || has_lora(named_state(*model.module)), ErrorKind::Checkpoint, kCheckpointWeights, path,
        ": has adapters (lora_A, lora_B) next to the weights, whose scale is not in the file; hint: name the folder of the checkpoint");
  if (!file.chosen.empty()) log_info("weights: ", path, ": ", file.chosen);
  try {
    const auto moved = detail::move_head_to_classes(file, model, options.classes);
    auto report = load_weights(model, file.tensors, {.head = {}, .strict = options.strict});
    report.converted.insert(report.converted.end(), moved.begin(), moved.end());
    return report;
  } catch (const Error& e) {
    throw Error(e.kind(), path, e.what(), "", std::current_exception());
  }
}

WeightsFile read_weights_for(const PartConfig& model, const Parts& parts, const std::string& path, std::optional<WeightSet> set) {
  auto out = read_weights(path, set.value_or(parts.models.tuning(model, "model").weights));
  check_nanogpt_heads(out, resolved_model(model, parts), path);
  return out;
}

}  // namespace npu_train
