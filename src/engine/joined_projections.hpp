// Converts a ViT with `qkv: split` to torchvision's network, whose attention has a single projection: [q; k; v] along the first dimension.
// SGD and Adam work element by element, so their state is joined in the same way.
#pragma once

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/nn/module_state.hpp"

namespace npu_train::detail {

/// Returns whether the tensors belong to a ViT with split projections.
bool has_split_projections(const NamedTensors& tensors);

/// Joins q_proj.weight, k_proj.weight and v_proj.weight into "....self_attention.in_proj_weight", at the position of the first, and their
/// biases likewise. Other tensors are unchanged. Error(Checkpoint) if one of the three is missing.
NamedTensors join_projections(const NamedTensors& tensors);
ParameterSet join_projections(const ParameterSet& parameters);

/// Joins the state of an optimizer, whose names are "SLOT/PARAMETER". Numbers (such as steps) must be equal for the three projections.
/// Error(Usage) if they differ, or if only some of the three have a state, which means that they were not trained in the same way.
State join_projections(const State& optimizer);

}  // namespace npu_train::detail
