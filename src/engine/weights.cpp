#include "npu_train/engine/weights.hpp"

#include <filesystem>

#include "engine/hub_config.hpp"
#include "engine/weight_shards.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/io/pickle.hpp"
#include "npu_train/nn/adapter.hpp"
#include "npu_train/train/checkpoint_store.hpp"

namespace npu_train {
namespace {

constexpr const char* kCheckpointWeights = "weights";

/// `model.lora` of the run that wrote a checkpoint, with the values that were left open.
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

}  // namespace

NamedTensors checkpoint_weights(const std::string& checkpoint, bool averages) {
  auto state = load_checkpoint(checkpoint, averages ? std::vector<std::string>{"model", "ema"} : std::vector<std::string>{"model"});
  check(state.count("model") != 0, ErrorKind::Checkpoint, kCheckpointWeights, checkpoint, ": the checkpoint contains no model");
  auto& model = state["model"].tensors;
  for (const auto& [key, tensor] : state["ema"].tensors) {
    const auto name = key.substr(key.find('/') + 1);
    if (model.count(name) != 0) model[name] = tensor;
  }
  auto tensors = tensors_by_every_name(state["model"]);
  if (!has_lora(tensors)) return tensors;
  const auto lora = lora_of(checkpoint);
  return merged_lora(tensors, lora.alpha / static_cast<double>(lora.rank));
}

void save_checkpoint_adapter(const std::string& from, const std::string& folder) {
  const auto checkpoint = find_checkpoint(from);
  const auto state = load_checkpoint(checkpoint, {"model"});
  check(state.count("model") != 0, ErrorKind::Checkpoint, kCheckpointWeights, checkpoint, ": the checkpoint contains no model");
  const auto tensors = tensors_by_every_name(state.at("model"));
  check(has_lora(tensors), ErrorKind::Usage, kCheckpointWeights, checkpoint, ": has no adapters; hint: train with model.lora");
  const auto config = load_checkpoint_config(checkpoint);
  const auto* base = config.find("model") != nullptr ? config.find("model")->find("weights") : nullptr;
  save_adapter(folder, tensors, lora_of(checkpoint), base != nullptr && base->is_scalar() ? base->scalar() : "");
}

NamedTensors read_weights_file(const std::string& path) {
  const std::filesystem::path file(path);
  check(std::filesystem::exists(file), ErrorKind::Data, "weights", path, ": no such file");
  if (std::filesystem::is_directory(file)) {
    if (const auto inside = detail::weights_in_folder(file); !inside.empty()) return read_weights_file(inside.string());
    if (is_adapter_folder(file))
      throw Error(ErrorKind::Usage, "weights", path + ": is an adapter, not the weights of a network",
                  "give the weights of its base, and the adapter as model.lora.from");
    return checkpoint_weights(find_checkpoint(path));
  }
  if (is_safetensors_name(file)) return load_safetensors(file);
  if (is_pth_name(file)) return load_pth(file).tensors;
  if (detail::is_weight_index(file)) return detail::load_weight_shards(file);
  throw Error(
      ErrorKind::Data, "weights", path + ": unknown file format",
      "supported formats are .safetensors, PyTorch's .pth, .pt, .bin, .ckpt and .pth.tar, an index of several files (*.index.json), "
      "checkpoint folders of npu_train and model folders of Hugging Face");
}

WeightsReport load_weights_file(Model& model, const std::string& path, const LoadWeightsOptions& options) {
  const auto tensors = read_weights_file(path);
  check(!has_lora(tensors) || has_lora(named_state(*model.module)), ErrorKind::Checkpoint, kCheckpointWeights, path,
        ": has adapters (lora_A, lora_B) next to the weights, whose scale is not in the file; hint: name the folder of the checkpoint");
  try {
    return load_weights(model, tensors, options);
  } catch (const Error& e) {
    throw Error(e.kind(), path, e.what(), "", std::current_exception());
  }
}

void check_weights_options(const PartConfig& model, const Parts& parts, const std::string& weights) {
  ConfigProblems problems;
  const auto resolved = parts.models.resolve(model, "model", problems);
  problems.throw_if_any();
  const auto* strict = resolved.options.find("weights_strict");
  detail::check_hub_config(weights, resolved, strict == nullptr || !strict->is_scalar() || strict->scalar() != "false");
}

}  // namespace npu_train
