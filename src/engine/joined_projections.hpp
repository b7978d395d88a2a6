// A ViT with `qkv: split` as torchvision's network, whose attention has one projection: [q; k; v] along the first dimension. The state of
// SGD and Adam is joined as the weights are, since these optimizers treat every element by itself.
#pragma once

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/nn/named_state.hpp"

namespace npu_train::detail {

/// Whether the tensors are those of a ViT with split projections.
bool has_split_projections(const NamedTensors& tensors);

/// "....self_attention.in_proj_weight" from q_proj.weight, k_proj.weight and v_proj.weight, in the place of the first; biases too. Other
/// tensors are unchanged. Error(Checkpoint) if one of the three is missing.
NamedTensors join_projections(const NamedTensors& tensors);
ParameterSet join_projections(const ParameterSet& parameters);

/// Of an optimizer's state, "SLOT/PARAMETER". Numbers of a parameter (its steps) are those of the three, which must be equal.
/// Error(Usage) if the three have different ones, or only some have a state: then they were not trained alike.
State join_projections(const State& optimizer);

}  // namespace npu_train::detail
