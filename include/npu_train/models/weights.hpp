/// Loads named tensors into a model and reports which ones were used.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "npu_train/io/safetensors.hpp"
#include "npu_train/nn/model.hpp"
#include "npu_train/nn/module_state.hpp"

namespace npu_train {

// Translates weight names of the built-in networks to and from those of other libraries.

/// Returns the namings that `renamed_weights` accepts:
///
///   torchvision   the names of npu_train itself
///   timm          timm 0.4 to 1.x
///   hf            the modules of transformers 5
///   hf4           the modules of transformers 4, and the files of the Hugging Face Hub, which every version reads by `from_pretrained`
std::vector<std::string> weight_namings();

/// The naming scheme of a file.
struct FoundNaming {
  std::string family{};  ///< vit, resnet, gpt2, llama, glm, bert or clip; "" for an unknown network
  std::string naming{};  ///< one of weight_namings(); torchvision if timm uses the same names, as for ResNets
  /// Returns a text for a log: "a vit with the names of timm".
  std::string str() const;
};

/// Recognises the naming from the names alone; ignores prefixes of wrappers ("module.", "state_dict.").
FoundNaming find_naming(const std::vector<std::string>& names);

struct RenamedWeights {
  FoundNaming from{};
  NamedTensors tensors{};
  std::vector<std::string> omitted{};  ///< names in the file that do not belong to the network, such as those of an optimizer
};

/// Returns the weights of a known network under the names of `naming`. Fuses or splits the projections of query, key and value, as the
/// other library does. Error(Checkpoint) if the network is unknown or part of a projection is missing; Error(Usage) for an unknown naming.
RenamedWeights renamed_weights(const NamedTensors& tensors, const std::string& naming);

/// Returns the configuration keys that follow from the shapes of weights with torchvision's names: {"model.depth", "12"}. Empty for an
/// unknown network. Shapes do not determine the number of attention heads.
std::vector<std::pair<std::string, std::string>> configuration_of(const NamedTensors& tensors);

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
/// - prefixes `module.`, `model.`, `_orig_mod.`, `state_dict.`, `model_state_dict.`, `net.`, or several of them, which wrappers and
///   checkpoints add to names, unless the model uses the name with the prefix;
/// - the names of timm and of Hugging Face's transformers for networks with torchvision's names, and those of torchvision's published ViT
///   files;
/// - `q_proj.weight`, `k_proj.weight`, `v_proj.weight` for a fused `in_proj_weight` and the reverse, also for biases;
/// - for a ViT, the position embedding of another image size and the patch projection of another patch size, which it resizes
///   (weight_resize.hpp).
/// Error(Checkpoint) if the tensors do not fit, or, without `strict`, if none fits. All checks precede the first write.
WeightsReport load_weights(torch::nn::Module& module, const NamedTensors& tensors, const LoadWeightsOptions& options = {});
WeightsReport load_weights(Model& model, const NamedTensors& tensors, LoadWeightsOptions options = {});

}  // namespace npu_train
