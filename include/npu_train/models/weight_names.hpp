/// The names that other libraries give to the weights of the built-in networks, in both directions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "npu_train/io/safetensors.hpp"

namespace npu_train {

/// The namings that are known, for `renamed_weights`:
///
///   torchvision   the names of npu_train itself
///   timm          timm 0.4 to 1.x
///   hf            the modules of transformers 5
///   hf4           the modules of transformers 4, and the files of the Hugging Face Hub, which every version reads by `from_pretrained`
std::vector<std::string> weight_namings();

/// What the names of a file are.
struct FoundNaming {
  std::string family{};  ///< vit or resnet; "" if the names are of no known network
  std::string naming{};  ///< one of weight_namings(); torchvision if timm has the same names, as for a ResNet
  /// For a log: "a vit with the names of timm".
  std::string str() const;
};

/// Decides by the names alone; prefixes of wrappers ("module.", "state_dict.") are ignored.
FoundNaming find_naming(const std::vector<std::string>& names);

struct RenamedWeights {
  FoundNaming from{};
  NamedTensors tensors{};
  std::vector<std::string> omitted{};  ///< names of the file that are not of the network, such as those of an optimizer
};

/// The weights of a known network under the names of `naming`. Projections of query, key and value are fused or split as that library does
/// it. Error(Checkpoint) if the network is not known, or has projections of which a part is missing; Error(Usage) for an unknown naming.
RenamedWeights renamed_weights(const NamedTensors& tensors, const std::string& naming);

/// The keys of a configuration that follow from the shapes of weights under torchvision's names: {"model.depth", "12"}. Empty if the
/// network is not known. The number of attention heads does not follow from shapes.
std::vector<std::pair<std::string, std::string>> configuration_of(const NamedTensors& tensors);

}  // namespace npu_train
