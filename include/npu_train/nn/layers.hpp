/// Layers of the built-in networks, which replace libtorch's own. Parameters are allocated but not filled, because the network initialises
/// each once. Each call is a single dispatcher operator that autocast, emulation and profilers know. Attention and dropout follow `rng:`.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace npu_train {

/// 2-D convolution with a square kernel. Parameters: weight [out, in, kernel, kernel], bias [out] if requested.
class Conv2d : public torch::nn::Module {
 public:
  struct Options {
    int64_t in = 0;
    int64_t out = 0;
    int64_t kernel = 1;
    int64_t stride = 1;
    int64_t padding = 0;
    bool bias = false;
    bool lowered = false;  ///< uses lowered_conv2d(): matrix products where they are faster, and one autograd node; only without bias
  };
  explicit Conv2d(const Options& options);

  /// Maps [N, in, H, W] to [N, out, H', W'], H' = (H + 2 padding - kernel) / stride + 1.
  at::Tensor forward(const at::Tensor& x) const;
  void pretty_print(std::ostream& stream) const override;

  const Options options;
  at::Tensor weight;
  at::Tensor bias;  ///< undefined without bias
};

/// y = x W^T + b over the last dimension. Parameters: weight [out, in], bias [out]. Calls aten::linear, unlike torch::nn::Linear. With
/// `packed`, calls packed_linear(), which is faster on some CPUs and makes one autograd node. apply_lora() adds low-rank adapters
/// (lora.hpp).
class Linear : public torch::nn::Module {
 public:
  Linear(int64_t in, int64_t out, bool bias = true, bool packed = false);

  /// Maps [..., in] to [..., out].
  at::Tensor forward(const at::Tensor& x) const;
  void pretty_print(std::ostream& stream) const override;

  /// Adds scale * B A dropout(x) to the output. Parameters: lora_A.weight [rank, in], initialised like PyTorch's linear layers, and
  /// lora_B.weight [out, rank], zeros, so that the output is initially unchanged. Dtype and device are those of the weight. Error(Usage) if
  /// the layer already has an adapter, for a rank below 1, a scale that is not finite, or a dropout outside [0, 1).
  void add_adapter(int64_t rank, double scale, double dropout = 0);
  bool has_adapter() const { return adapter_a_ != nullptr; }
  /// Adds scale * B A to the weight and removes the adapter. No effect without one.
  void merge_adapter();

  at::Tensor weight;
  at::Tensor bias;  ///< undefined without bias
  const bool packed;

 private:
  std::shared_ptr<Linear> adapter_a_, adapter_b_;
  double adapter_scale_ = 1, adapter_dropout_ = 0;
};

namespace detail {

/// Returns weight [out, in] + scale * b [out, rank] a [rank, in], computed in the widest dtype of the three, and at least in fp32.
at::Tensor with_adapter(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b, double scale);

}  // namespace detail

// Attention with dropout that follows `rng:`.

/// Computes softmax(q k^T / sqrt(E) + mask) v for q [..., L, E], k [..., S, E], v [..., S, Ev]; returns [..., L, Ev] (Vaswani et al. 2017).
/// A bool mask keeps the positions that are true, other masks are added. `causal` masks the keys after a query's position; do not combine
/// it with a mask. On a device whose overflow saturates, masking subtracts 10,000 from a score instead of adding -inf, which would be an
/// overflow. `p` is the probability of dropping a weight. Runs the fused kernel of the device, but separate operators if p is above 0
/// inside a PortableRandom. For bf16 on a CPU, without mask and dropout and with at most 256 keys, the backward computes in fp32 and rounds
/// its results. This is more accurate, and faster on a Zen 4; double backward is then an Error(Usage). Without `fused_kernels`, libtorch's
/// backward runs.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask = std::nullopt,
                     double p = 0, bool causal = false, bool fused_kernels = true);

// Dropout that follows `rng:`: it uses the device's generator, or portable numbers inside a PortableRandom.

/// Sets each value to 0 with probability `p` and divides the others by 1 - p (Srivastava et al., JMLR 2014). Returns x itself if p is 0 or
/// `training` is false. Error(Usage) for p outside [0, 1].
at::Tensor dropout(const at::Tensor& x, double p, bool training);

/// Drops entire samples: one draw per index of the first dimension of x [N, ...] (stochastic depth; Huang et al., ECCV 2016).
at::Tensor drop_path(const at::Tensor& x, double p, bool training);

}  // namespace npu_train
