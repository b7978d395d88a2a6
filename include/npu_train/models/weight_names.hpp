/// Translates weight names of the built-in networks to and from those of other libraries.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "npu_train/io/safetensors.hpp"

namespace npu_train {

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

}  // namespace npu_train
