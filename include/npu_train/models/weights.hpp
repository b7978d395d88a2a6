/// Reads tensors by name into a model, and says exactly what went where.
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
  /// Path of the classifier, which may be missing or have a different size in the file: then it stays unchanged. The overload for a Model
  /// uses the model's head.
  std::string head{};
  /// Error(Checkpoint) unless the tensors fit (WeightsReport::fits); the model is then unchanged. false loads the tensors that fit.
  bool strict = true;
};

/// What happened to each name.
struct WeightsReport {
  struct Misshapen {
    std::string name;
    std::string here;   ///< "[10, 2048]" or a dtype that does not fit
    std::string given;  ///< the same of the file
  };
  std::vector<std::string> loaded;      ///< of the model, filled from the file
  std::vector<std::string> missing;     ///< of the model, not in the file; unchanged. Batch counters may be absent and are not listed.
  std::vector<std::string> unexpected;  ///< of the file, not in the model
  std::vector<std::string>
      deeper;  ///< those of them that the file's network computes with: further layers, other tensors of a block, registers
  std::vector<Misshapen> misshapen;           ///< in both, with different shapes; unchanged
  std::vector<std::string> not_finite;        ///< of the model, loaded with values that are NaN or infinite
  FoundNaming naming;                         ///< whose names the file has
  std::vector<std::string> removed_prefixes;  ///< "module." ...: taken off names of the file
  std::vector<std::string>
      converted;           ///< of the model, put together ("... from q_proj, k_proj, v_proj") or resized ("... from [1, 197, 192]")
  std::string fresh_head;  ///< the head, if the file has none or one with a different size: it keeps its initial values
  std::vector<std::string>
      fitting_keys;  ///< values of the configuration that the file would fit, where the model has others: model.depth=6

  /// Everything fitted.
  bool complete() const { return missing.empty() && unexpected.empty() && misshapen.empty(); }
  /// The tensors fit, and all values are finite: nothing to warn about.
  bool sound() const { return fits() && not_finite.empty(); }
  /// The tensors are of this network: outside the head nothing is missing or misshapen, and the file has no further layers or parts.
  bool fits() const;
  /// For a log: one line of counts, then a line for each kind of trouble, long lists cut.
  std::string str() const;
};

/// The names of the tensors that have a NaN or an infinite value.
std::vector<std::string> not_finite_tensors(const NamedTensors& tensors);

/// Copies `tensors` into the parameters and buffers of `module`, converting dtype and device. Accepted in addition to equal names:
/// - prefixes `module.`, `model.`, `_orig_mod.`, `state_dict.`, `model_state_dict.`, `net.` (also several) of wrappers and of checkpoints
///   around the weights, unless the model has the name with it;
/// - the names of timm and of Hugging Face's transformers for networks with torchvision's names (weight_names.hpp), and the names of
///   torchvision's published ViT files;
/// - `in_proj_weight` of fused projections from `q_proj.weight`, `k_proj.weight`, `v_proj.weight` and the reverse, biases too;
/// - of a ViT, the position embedding of another image size and the patch projection of another patch size: both are resized
///   (weight_resize.hpp).
/// Error(Checkpoint) if they do not fit, or, without `strict`, if none fits. Nothing is written before everything was checked.
WeightsReport load_weights(torch::nn::Module& module, const NamedTensors& tensors, const LoadWeightsOptions& options = {});
WeightsReport load_weights(Model& model, const NamedTensors& tensors, LoadWeightsOptions options = {});

}  // namespace npu_train
