/// Clipping of gradients. With a loss scale: after unscaling, else the limit means something else at every scale.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/squared_norm.hpp"

namespace npu_train {

/// Scales all gradients by max_norm / (norm + 1e-6) where that is below 1; as torch.nn.utils.clip_grad_norm_. Gives the norm before
/// clipping, a scalar on the device of the first gradient, in fp32 (in fp64 if a gradient is fp64 or complex128). `norm_type` is 2 or
/// infinity. No gradient at all: 0. Error(Usage) for slices of parameters without `reduce`, which adds what other ranks have. A norm that
/// is not finite makes all gradients not finite (as in torch): check first. Error(Usage) for a max_norm that is not positive, another norm,
/// and a gradient that is sparse or expanded (several elements share memory). `reduce`, for the inf norm: gets the largest absolute value,
/// a scalar on the device in fp32 (in fp64 if a gradient is fp64), and maximises it.
///
/// The bits of the 2-norm. Squares are added in fp64 in blocks of 64 numbers, in the order in which the parameter is in memory, and block
/// sums are added without rounding (kernels/block_squares.hpp), so the norm does not depend on:
///   CPU                       order and grouping of parameters, threads, instruction set, ranks that the gradients are sharded over in
///                             multiples of 64 numbers; squares overflow and vanish nowhere
///   GPU, devices with fp64    the same things; the last rounding to fp64 is not that of the CPU, which fp32 rarely shows. Squares of fp64
///                             gradients overflow beyond 1e154
///   NPU, without fp64         nothing is promised but equal bits for equal gradients: fp32, which overflows beyond 1.8e19
/// On an accelerator the host reads nothing.
at::Tensor clip_grad_norm_(const ParameterSet& parameters, double max_norm, double norm_type = 2, const NormReduction& reduce = {});
/// The same for parameters given directly, such as `model->parameters()`.
at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type = 2,
                           const NormReduction& reduce = {});

/// The parts of clip_grad_norm_, for a norm that ranks agree on in between: the squares of all gradients, which norm_of() turns into their
/// norm, the norm itself, and their scaling by max_norm / (norm + 1e-6) where that is below 1. Errors as above.
SquaredNorm squared_grad_norm(const ParameterSet& parameters);
at::Tensor grad_norm(const ParameterSet& parameters, double norm_type = 2);
void clip_grads_with_norm_(const ParameterSet& parameters, double max_norm, const at::Tensor& norm);

/// Each element of each gradient to [-clip_value, clip_value]. Error(Usage) for a value that is not positive and a gradient that is sparse,
/// complex or expanded.
void clip_grad_value_(const ParameterSet& parameters, double clip_value);
void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value);

}  // namespace npu_train
