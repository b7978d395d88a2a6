/// A network as the rest of the library takes it: the module, how to call it, and what it expects.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/core/registry.hpp"

namespace torch::nn {
class Module;
}

namespace npu_train {

/// A piece of a network that takes one tensor and gives one: what activation checkpointing recomputes as a whole.
struct Block {
  std::string name;  ///< path of the module that it mainly runs ("layer1.0"); "stem", "head" and the like where there is none
  std::function<at::Tensor(const at::Tensor&)> forward;
};

/// A network: module, call and expectations. Copies share the module.
struct Model {
  std::string name{};
  std::shared_ptr<torch::nn::Module> module{};
  /// [N, channels, H, W] -> logits [N, num_classes]. Runs under whatever autocast and gradient mode the caller has set.
  std::function<at::Tensor(const at::Tensor&)> forward{};
  int64_t image_size = 0;  ///< height and width that it is meant for, in pixels; 0: any
  int64_t channels = 3;
  int64_t num_classes = 0;
  std::string head{};          ///< path of the classifier ("fc"); "" when there is none to replace
  std::string weights{};       ///< file to load before training; "" starts fresh. Read by the engine, not by the factory.
  bool weights_strict = true;  ///< weights of another network are an error; false loads what fits
  bool capturable = false;     ///< `forward` queues the same work for every input of a shape, see Task::capturable
  /// The same computation as `forward`, cut into its blocks in order; empty for a model that is one piece.
  std::vector<Block> blocks{};
};

/// Fills `forward` with the blocks in order, each declared as a layer (layer_scope.hpp).
Model chain_blocks(Model model);

/// The networks that a configuration can name.
using ModelRegistry = Registry<Model>;

}  // namespace npu_train
