// The families of networks. Each has a folder with its network, options, weight names and rules for config.json; families.cpp lists them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/weights/weight_rules.hpp"
#include "models/weights/weight_shapes.hpp"
#include "npu_train/models/hub_network.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train::detail {

class HubReader;

struct ModelFamily {
  std::string name;             // name of the family: "gpt2"
  void (*add)(ModelRegistry&);  // registers the network and its named sizes
  // Values of model_type in the config.json of transformers, each with the function that reads the file.
  std::vector<std::pair<std::string, void (*)(const Json&, HubNetwork&)>> hub_types = {};
  // Reads the config.json of timm; returns false for an architecture of another family.
  bool (*read_timm)(const std::string& architecture, const Json& config, HubReader& file, HubNetwork& out) = nullptr;
  std::vector<Naming> namings = {};                                  // namings of the weights, our own first
  ConfigurationKeys (*keys_of)(const WeightShapes& ours) = nullptr;  // returns the options that the weights determine
  bool in_torchvision = false;                                       // true: our names are those of torchvision
  bool decoder = false;                                              // true: the network is a causal language model
};

const std::vector<ModelFamily>& model_families();

// Registers a network under a name. `defaults` are the options of a named size.
template <class Options>
void add_network(ModelRegistry& registry, Model (*make)(const Options&, const std::string&), const std::string& name,
                 const std::string& doc, const Options& defaults = {}) {
  registry.add(
      name, doc, [make, name](const Options& options) { return make(options, name); }, defaults);
}

}  // namespace npu_train::detail
