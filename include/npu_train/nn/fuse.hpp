/// Operator fusion for inference: neighbouring operators become one where a measurement on this machine shows a gain.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/core/clock.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train {

/// Criteria for keeping a pattern, and options of the measurement.
struct FuseOptions {
  /// Least share of time that a pattern must save, at most 1; with a negative value, a pattern may be slower by this share. If the complete
  /// forward becomes slower (with a negative value: slower than this share allows), no pattern is kept.
  double min_saving = 0.3;
  double max_memory_overhead = 1.2;  ///< limit on the pattern's weights and peak memory, relative to the separate operators
  double max_error = 1e-4;           ///< limit on the deviation, relative to the largest value of the separate operators' result
  /// Input of the model for the measurements, [N, channels, H, W] for images; use the batch size of later calls. Undefined: one random
  /// sample of Model::inputs.
  at::Tensor example{};
  /// true: keeps the weights of fused layers, which costs their memory; later changes to them do not affect the fused forward. false:
  /// fuse() frees these weights; they keep name and shape, but read as NaN. A weight that is still read when the example runs is kept in
  /// any case, and counts as memory.
  bool keep_weights = false;
  int repeats = 7;                       ///< timings of each form; the best one counts
  std::shared_ptr<const Clock> clock{};  ///< clock of the timings; nullptr: steady_clock()
};

/// Result for one match of a pattern.
struct FusedPattern {
  std::string layer;    ///< layer of its first operator ("layer1.0.conv1"); attention has no layer: the shape of its queries
  std::string pattern;  ///< "Conv2d+BatchNorm+Add+ReLU"
  std::string form;     ///< best form: folded, product, onednn, in_place, blocks, attention
  bool kept = false;
  double saving = 0;           ///< share of time saved; negative: slower
  double memory_overhead = 0;  ///< memory relative to the separate operators
  double error = 0;            ///< relative deviation, see FuseOptions::max_error
  std::string reason;          ///< reason for not keeping the pattern
};

/// The patterns of a model in operator order, and totals.
struct FuseReport {
  std::vector<FusedPattern> patterns;
  double seconds_before = 0;  ///< best time of a forward of the example
  double seconds_after = 0;
  double error = 0;  ///< relative deviation of the model's result

  int64_t kept() const;
  /// Returns one line per pattern and one for the model.
  std::string str() const;
};

/// A model whose forward runs the kept patterns as fused operators.
struct FusedModel {
  Model model;
  FuseReport report;
};

/// Records one forward of `model` in evaluation mode and finds Conv2d + BatchNorm (+ addition) (+ ReLU), Linear + ReLU or GELU, LayerNorm +
/// GELU, and softmax(q k^T / s) v. It finds them by data flow, not by names, in any module that calls libtorch's operators. A pattern whose
/// intermediate result is used elsewhere is not fused. The BatchNorm is folded into the weights of the convolution (Jacob et al. 2018), and
/// the convolution runs as a matrix product or with weights prepacked for oneDNN if that is faster. Attention becomes
/// at::scaled_dot_product_attention.
///
/// The fused forward accepts any batch size and runs without gradients and autocast, in the dtype of the model's weights. If a forward
/// branches differently than with the example, the separate operators run; if their weights were released (see keep_weights), this is an
/// Error(Usage). fuse() does not detect code that reads the memory of an intermediate result without an operator (data_ptr). The layer of
/// such code must not be fused; FuseReport::error shows the deviation. fuse() leaves the module in evaluation mode.
///
/// For torch::nn::Linear the number of dimensions of the example matters: libtorch calls matmul for three and addmm for two, which count as
/// different branches. Not fused: Conv2d with padding torch::kSame, and BatchNorm after Conv1d or transposed convolutions. Move and cast
/// the module before fuse(): if its weights were released, running it after a later move or cast is an Error(Usage).
///
/// Error(Usage) for a model without a forward, for an example that does not match it, and for options out of range.
FusedModel fuse(const Model& model, const FuseOptions& options = {});

}  // namespace npu_train
