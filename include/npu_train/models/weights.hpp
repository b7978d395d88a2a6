/// Loads named tensors into a model and reports which ones were used.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "npu_train/models/weight_names.hpp"
#include "npu_train/nn/model.hpp"
#include "npu_train/nn/named_state.hpp"

namespace npu_train {

struct LoadWeightsOptions {
  /// Path of the classifier layer, which stays unchanged if the file does not contain it or has it in a different size. Default for a
  /// Model: its head.
  std::string head{};
  /// true: Error(Checkpoint), without a change, unless the tensors fit (WeightsReport::fits). false: loads the tensors that fit.
  bool strict = true;
};

/// Result of loading, for each name.
struct WeightsReport {
  struct Misshapen {
    std::string name;
    std::string here;   ///< shape, such as "[10, 2048]", or dtype in the model
    std::string given;  ///< shape or dtype in the file
  };
  std::vector<std::string> loaded;  ///< names in the model that were filled from the file
  std::vector<std::string>
      missing;  ///< names in the model that are not in the file; unchanged. Batch counters may be absent and are not listed.
  std::vector<std::string> unexpected;  ///< names in the file that are not in the model
  std::vector<std::string>
      deeper;  ///< those unexpected names with which the file's network computes: further layers, other tensors of a block, registers
  std::vector<Misshapen> misshapen;           ///< names in both, with different shapes; unchanged
  std::vector<std::string> not_finite;        ///< loaded names whose values contain NaN or infinity
  FoundNaming naming;                         ///< naming of the file
  std::vector<std::string> removed_prefixes;  ///< prefixes such as "module." that were removed from names in the file
  std::vector<std::string>
      converted;           ///< names in the model that were fused ("... from q_proj, k_proj, v_proj") or resized ("... from [1, 197, 192]")
  std::string fresh_head;  ///< name of the head if the file has none, or one of a different size: it keeps its initial values
  std::vector<std::string> fitting_keys;  ///< configuration keys of the file's network that differ from the model's: model.depth=6

  /// Returns whether all names and shapes match.
  bool complete() const { return missing.empty() && unexpected.empty() && misshapen.empty(); }
  /// Returns whether the tensors fit and all values are finite, so that no warning is needed.
  bool sound() const { return fits() && not_finite.empty(); }
  /// Returns whether the file belongs to this network: nothing outside the head is missing or misshapen, and the file has no additional
  /// layers or parts.
  bool fits() const;
  /// Returns text for a log: a line of counts, then a line for each kind of problem, with long lists shortened.
  std::string str() const;
};

/// Returns the names of the tensors that contain NaN or infinite values.
std::vector<std::string> not_finite_tensors(const NamedTensors& tensors);

/// Copies `tensors` into the parameters and buffers of `module`, converting dtype and device. In addition to equal names it accepts:
/// - prefixes `module.`, `model.`, `_orig_mod.`, `state_dict.`, `model_state_dict.`, `net.` (also several) of wrappers and of checkpoints
///   around the weights, unless the model uses the name with the prefix;
/// - the names of timm and of Hugging Face's transformers for networks with torchvision's names (weight_names.hpp), and the names of
///   torchvision's published ViT files;
/// - `q_proj.weight`, `k_proj.weight`, `v_proj.weight` for a fused `in_proj_weight` and the reverse, also for biases;
/// - for a ViT, the position embedding of another image size and the patch projection of another patch size, which it resizes
///   (weight_resize.hpp).
/// Error(Checkpoint) if the tensors do not fit, or, without `strict`, if none fits. All checks precede the first write.
WeightsReport load_weights(torch::nn::Module& module, const NamedTensors& tensors, const LoadWeightsOptions& options = {});
WeightsReport load_weights(Model& model, const NamedTensors& tensors, LoadWeightsOptions options = {});

}  // namespace npu_train
