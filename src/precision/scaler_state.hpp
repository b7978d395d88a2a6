// What GradScaler and the 16-* precisions share.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "npu_train/base/state.hpp"
#include "npu_train/precision/loss_scale.hpp"

namespace npu_train::detail {

State to_state(const LossScaleState& state);
LossScaleState loss_scale_state(const State& state, const std::string& part);

// As torch: the reciprocal is taken in double and used in fp32.
double inverse_scale(double scale);

// A scalar loss is promoted to fp32 (65536 is not an fp16 number); any other keeps its dtype, as in torch.
at::Tensor times_scale(const at::Tensor& loss, double scale);

}  // namespace npu_train::detail
