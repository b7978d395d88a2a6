// Shared parts of GradScaler and the 16-* precisions.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "npu_train/base/state.hpp"
#include "npu_train/precision/loss_scale.hpp"

namespace npu_train::detail {

State to_state(const LossScaleState& state);
LossScaleState loss_scale_state(const State& state, const std::string& part);

// Returns the reciprocal, computed in double and rounded to fp32, as in torch.
double inverse_scale(double scale);

// Multiplies the loss by the scale. A low-precision scalar is promoted to fp32 (65536 is not an fp16 number); other losses keep their
// dtype, as in torch.
at::Tensor times_scale(const at::Tensor& loss, double scale);

}  // namespace npu_train::detail
