/// Inference with fewer passes over memory: neighbouring operators of a model as one, wherever a measurement on this machine is for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/core/clock.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train {

/// When a pattern is kept, and how it is measured.
struct FuseOptions {
  /// Share of the pattern's time that it must save, at most 1; below 0 it may be slower. No pattern is kept if the complete forward would
  /// be slower (with a min_saving below 0: by more than that).
  double min_saving = 0.3;
  double max_memory_overhead = 1.2;  ///< its weights and peak of other memory over those of the separate operators, at most
  double max_error = 1e-4;           ///< largest deviation over the largest value of the separate operators' result, at most
  /// The model's input, [N, channels, H, W] for images; the measurements are made with it, so give the batch that will be run. Undefined:
  /// one random sample of Model::inputs.
  at::Tensor example{};
  /// Keeps the parameters of fused layers, at the price of their memory; the fused forward holds what they were, and does not follow when
  /// they change. Otherwise fuse() takes the model over: those parameters keep name and shape, and read as NaN. A weight without which the
  /// example does not run stays, and counts as memory.
  bool keep_weights = false;
  int repeats = 7;                       ///< timings of each form; the best counts
  std::shared_ptr<const Clock> clock{};  ///< that they are taken with; nullptr: steady_clock()
};

/// What was found at one place of a model.
struct FusedPattern {
  std::string layer;    ///< of its first operator: "layer1.0.conv1"; shapes where there is no parameter
  std::string pattern;  ///< "Conv2d+BatchNorm+Add+ReLU"
  std::string form;     ///< how it was best computed: folded, product, onednn, in_place, blocks, attention
  bool kept = false;
  double saving = 0;           ///< share of the time, negative where it is slower
  double memory_overhead = 0;  ///< bytes over bytes
  double error = 0;            ///< as FuseOptions::max_error
  std::string reason;          ///< why it was not kept
};

/// The patterns of a model in the order of their operators, and the totals of the model.
struct FuseReport {
  std::vector<FusedPattern> patterns;
  double seconds_before = 0;  ///< best time of a forward with the example
  double seconds_after = 0;
  double error = 0;  ///< of the model's result, as FuseOptions::max_error

  int64_t kept() const;
  /// A line for each pattern and one for the model.
  std::string str() const;
};

/// A model whose forward computes the kept patterns as one.
struct FusedModel {
  Model model;
  FuseReport report;
};

/// Looks at one forward of `model` in evaluation mode and finds Conv2d + BatchNorm (+ addition) (+ ReLU), Linear + ReLU or GELU,
/// LayerNorm + GELU, and softmax(q k^T / s) v, in any module that calls libtorch's operators: by the flow of tensors, not by names. A
/// pattern with an intermediate result that other code reads is not fused. The norm is folded into the weights of a convolution (Jacob et
/// al. 2018), which runs as a matrix product or with weights prepacked for oneDNN if that is faster; attention is
/// at::scaled_dot_product_attention.
///
/// The fused forward takes any batch size, runs without gradients and without autocast, in the type of the model's weights. If a forward
/// branches differently than with the example, the separate operators run; if their weights were released (see keep_weights), that is
/// Error(Usage). Code that reads the memory of an intermediate result without an operator (data_ptr) is not detected: such a layer must not
/// be fused, which `error` shows. fuse() leaves the module in evaluation mode.
///
/// For torch::nn::Linear the number of dimensions of the example matters: libtorch calls matmul for three and addmm for two, which count as
/// different branches. Conv2d with padding torch::kSame, Conv1d and transposed convolutions + BatchNorm are not fused. Move and cast the
/// module before fuse(): running a fused forward whose module was moved or cast after its weights were released is Error(Usage).
///
/// Error(Usage) for a model without forward, with forward and example that do not fit, or options out of range.
FusedModel fuse(const Model& model, const FuseOptions& options = {});

}  // namespace npu_train
