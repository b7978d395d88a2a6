#include "npu_train/engine/weights.hpp"

#include <filesystem>

#include "engine/weight_shards.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/io/pickle.hpp"
#include "npu_train/train/checkpoint_store.hpp"

namespace npu_train {

NamedTensors read_weights_file(const std::string& path) {
  const std::filesystem::path file(path);
  check(std::filesystem::exists(file), ErrorKind::Data, "weights", path, ": no such file");
  if (std::filesystem::is_directory(file)) {
    if (const auto inside = detail::weights_in_folder(file); !inside.empty()) return read_weights_file(inside.string());
    const auto state = load_checkpoint(find_checkpoint(path), {"model"});
    check(state.count("model") != 0, ErrorKind::Checkpoint, "weights", path, ": the checkpoint contains no model");
    return tensors_by_every_name(state.at("model"));
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
  try {
    return load_weights(model, tensors, options);
  } catch (const Error& e) {
    throw Error(e.kind(), path, e.what(), "", std::current_exception());
  }
}

}  // namespace npu_train
