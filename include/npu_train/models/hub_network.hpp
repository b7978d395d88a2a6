/// The config.json of Hugging Face's Hub as options of the networks of this library. A file of weights does not determine its
/// network: the number of heads, activations, rotary positions and the eps of norms are not in the shapes of its tensors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "npu_train/core/config_node.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train {

/// A key of config.json, and the option of ours that must have its value.
struct HubOption {
  enum class Rule {
    Equal,
    AtMost,  ///< a smaller one is a choice of the training
    Open,    ///< another one is a choice of the training
  };
  std::string key;     ///< "num_attention_heads", or "vision_config.num_attention_heads"
  std::string theirs;  ///< its value, for messages
  std::string option;  ///< "heads"
  ConfigNode value;    ///< of the option
  Rule rule = Rule::Equal;
  bool size = false;     ///< one of those that a name such as llama_tiny determines
  bool compared = true;  ///< false for a size that the file does not have, which follows from its tensors: `value` is transformers' default
  double zero = 0;       ///< the meaning of 0 as a value of the option
};

/// A network in the options of ours.
struct HubNetwork {
  std::string model;  ///< "llama", "resnet50"; "" if ours has no such size
  std::vector<HubOption> options{};
  /// What that network does and ours does not, one sentence each: "attention_bias is true, this network has false". A key that is not known
  /// is one of them.
  std::vector<std::string> foreign{};
};

/// The values of `model_type` that are known.
std::vector<std::string> hub_model_types();

/// Whether a config.json may describe the built-in model of this name.
bool has_hub_config(const std::string& model);

/// The network of a config.json of transformers, or of timm (without a model_type, but with an architecture); nullopt if its model_type is
/// not known. Values of wrong types are foreign. Source: the configurations of transformers 5.24, and those of transformers 4 where they
/// differ; timm 1.0.
std::optional<HubNetwork> hub_network(const Json& config);

}  // namespace npu_train
