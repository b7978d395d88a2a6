#include "engine/saved_weights.hpp"

#include "npu_train/core/error.hpp"

namespace npu_train::detail {

SavedWeights saved_weights(const std::string& checkpoint, WeightSet set) {
  auto state = load_checkpoint(checkpoint, {"model", "ema"});
  check(state.count("model") != 0, ErrorKind::Checkpoint, "weights", checkpoint, ": the checkpoint contains no model");
  const auto averages = state.find("ema");
  SavedWeights out{.has_averages = averages != state.end() && !averages->second.tensors.empty()};
  check(set != WeightSet::Ema || out.has_averages, ErrorKind::Checkpoint, "weights", checkpoint,
        ": has no averages: the run had no section average, or none had begun (average.start) when it was saved; hint: --weights plain");
  out.averages = out.has_averages && set != WeightSet::Plain;
  auto& model = state["model"].tensors;
  if (out.averages)
    for (const auto& [key, tensor] : averages->second.tensors) {
      const auto name = key.substr(key.find('/') + 1);
      if (model.count(name) != 0) model[name] = tensor;
    }
  out.tensors = tensors_by_every_name(state["model"]);
  return out;
}

}  // namespace npu_train::detail
