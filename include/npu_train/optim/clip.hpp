/// Gradient clipping. With a loss scale, clip after unscaling; otherwise the limit depends on the scale.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/squared_norm.hpp"

namespace npu_train {

/// Scales all gradients by max_norm / (norm + 1e-6) if that is below 1, as torch.nn.utils.clip_grad_norm_ does. Returns the norm before
/// clipping: a scalar on the device of the first gradient, in fp32 (fp64 if a gradient is fp64 or complex128), 0 without any gradient.
/// `norm_type` is 2 or infinity. A norm that is not finite makes all gradients not finite, as in torch, so check for overflows first.
/// `reduce` combines the norm with the norms of other ranks. For norm 2, see NormReduction; for the inf norm, it receives the largest
/// absolute value of this rank, a scalar on the device in fp32 (fp64 if a gradient is fp64), and replaces it with the maximum over all
/// ranks. Error(Usage) for slices of parameters without `reduce`, a max_norm that is not positive, another norm_type, and a gradient that
/// is sparse or expanded (several elements share memory).
///
/// Reproducibility of the 2-norm. Squares are added in fp64 in blocks of 64 numbers in the parameter's storage order, and block sums are
/// added without rounding (kernels/block_squares.hpp). This makes the norm reproducible:
///   CPU                       the norm does not depend on order and grouping of parameters, threads, instruction set, or ranks that
///                             shard the gradients at multiples of 64 numbers; squares never overflow or vanish
///   GPU, devices with fp64    as on the CPU; the last rounding to fp64 differs from the CPU's, which is rarely visible in fp32. Squares
///                             of fp64 gradients overflow beyond 1e154
///   NPU, without fp64         equal gradients give equal bits, and no more is guaranteed; squares are in fp32 and overflow beyond 1.8e19
/// On an accelerator the host reads no values.
at::Tensor clip_grad_norm_(const ParameterSet& parameters, double max_norm, double norm_type = 2, const NormReduction& reduce = {});
/// Overload for a list of parameters, such as `model->parameters()`.
at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type = 2,
                           const NormReduction& reduce = {});

/// The steps of clip_grad_norm_, for ranks that agree on the norm in between: the sum of squares (norm_of() converts it to the norm), the
/// norm itself, and the scaling of the gradients by max_norm / (norm + 1e-6) if that is below 1. Errors as above.
SquaredNorm squared_grad_norm(const ParameterSet& parameters);
at::Tensor grad_norm(const ParameterSet& parameters, double norm_type = 2);
void clip_grads_with_norm_(const ParameterSet& parameters, double max_norm, const at::Tensor& norm);

/// Clamps each element of each gradient to [-clip_value, clip_value]. Error(Usage) for a value that is not positive and a gradient that is
/// sparse, complex or expanded.
void clip_grad_value_(const ParameterSet& parameters, double clip_value);
void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value);

}  // namespace npu_train
