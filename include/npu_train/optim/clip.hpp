/// Clipping of gradients. With a loss scale: after unscaling, else the limit means something else at every scale.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train {

/// For gradients that are sharded over ranks: gets the sum of squares (for the inf norm: the largest absolute value) of this rank as a
/// scalar on the device, in fp32 (in fp64 if a gradient is fp64), and sums (maximises) it over ranks in place. The identity by default.
using NormReduction = std::function<void(at::Tensor& value)>;

/// Scales all gradients by max_norm / (norm + 1e-6) where that is below 1; as torch.nn.utils.clip_grad_norm_. Gives the norm before
/// clipping, a scalar on the device of the first gradient, in fp32 (in fp64 if a gradient is fp64 or complex128); on an accelerator the
/// host reads nothing. `norm_type` is 2 or infinity. Norms of fp16 and bf16 gradients are computed in fp32. On the CPU squares do not
/// overflow where the norm does not. No gradient at all: 0. A norm that is not finite makes all gradients not finite (as in torch): check
/// first. Error(Usage) for a max_norm that is not positive, another norm, and a gradient that is sparse or expanded (several elements share
/// memory).
at::Tensor clip_grad_norm_(const ParameterSet& parameters, double max_norm, double norm_type = 2, const NormReduction& reduce = {});
/// The same for parameters given directly, such as `model->parameters()`.
at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type = 2,
                           const NormReduction& reduce = {});

/// The two halves of clip_grad_norm_, for a norm that ranks agree on in between: the norm of all gradients, and their scaling by
/// max_norm / (norm + 1e-6) where that is below 1. Errors as above.
at::Tensor grad_norm(const ParameterSet& parameters, double norm_type = 2);
void clip_grads_with_norm_(const ParameterSet& parameters, double max_norm, const at::Tensor& norm);

/// Each element of each gradient to [-clip_value, clip_value]. Error(Usage) for a value that is not positive and a gradient that is sparse,
/// complex or expanded.
void clip_grad_value_(const ParameterSet& parameters, double clip_value);
void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value);

}  // namespace npu_train
