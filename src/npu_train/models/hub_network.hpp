/// Translates the config.json of Hugging Face's Hub to options of this library's networks. The weights alone do not determine a network:
/// their shapes do not show the number of heads, activations, rotary positions and the eps of norms.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "npu_train/core/config_node.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train {

/// A key of config.json with the value that our corresponding option must have.
struct HubOption {
  enum class Rule {
    Equal,
    AtMost,  ///< a smaller value may be chosen for the training
    Open,    ///< another value may be chosen for the training
  };
  std::string key;     ///< key in the file: "num_attention_heads", or "vision_config.num_attention_heads"
  std::string theirs;  ///< value in the file, for messages
  std::string option;  ///< option of our network: "heads"
  ConfigNode value;    ///< value that the option must have
  Rule rule = Rule::Equal;
  bool size = false;     ///< the option belongs to a named size such as llama_tiny
  bool compared = true;  ///< false: the file lacks a size that its tensors determine, and `value` is transformers' default
  double zero = 0;       ///< effective value of the option if it is 0
};

/// A network in terms of our options.
struct HubNetwork {
  std::string model;  ///< "llama", "resnet50"; "" if we have no network of this size
  std::vector<HubOption> options{};
  /// Features of that network that ours lacks, one sentence each: "attention_bias is true, this network has false". Includes unknown keys.
  std::vector<std::string> foreign{};
};

/// Returns the known values of `model_type`.
std::vector<std::string> hub_model_types();

/// Returns whether a config.json may describe the built-in model of this name.
bool has_hub_config(const std::string& model);

/// Reads a config.json of transformers, or of timm (without a model_type, but with an architecture); nullopt for an unknown model_type.
/// Values of wrong types are foreign. Source: the configurations of transformers 5.24, and of transformers 4 where they differ; timm 1.0.
std::optional<HubNetwork> hub_network(const Json& config);

}  // namespace npu_train
