/// LAMB (You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", ICLR 2020), for large batches.
#pragma once

#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/optim/optimizer.hpp"

namespace npu_train {

struct LambOptions {
  double lr = 2e-3;
  std::vector<double> betas = {0.9, 0.999};  ///< decay of the running means of gradients and of their squares
  double eps = 1e-6;
  double weight_decay = 0.01;  ///< added to the update before the trust ratio is computed
  bool no_decay = false;       ///< no weight decay for biases and normalisation parameters
  static const ConfigTable<LambOptions>& config_table();
};

/// Algorithm 2 of the paper with bias correction: r = m_hat / (sqrt(v_hat) + eps) + weight_decay * p, and per tensor p -= lr * (|p| / |r|)
/// * r, where the ratio is 1 if a norm is 0. Computed in fp32 (fp64 for fp64 parameters); fp16 and bf16 parameters are rounded once. On a
/// CPU, and for slices, the norms are those of SquaredNorm, which do not depend on the order of additions.
class Lamb final : public Optimizer {
 public:
  /// Error(Usage) for options out of range.
  explicit Lamb(ParameterSet parameters, LambOptions options = {});
  std::string name() const override { return "lamb"; }
  bool takes_slices() const override { return true; }
  ConfigNode options() const override { return to_node(options_); }

 protected:
  void update(Bucket& bucket) override;

 private:
  struct Move;
  Move move(const Bucket& bucket, size_t i) const;
  static at::Tensor squares(const at::Tensor& parameter, const at::Tensor& tensor);
  void apply(Bucket& bucket, size_t i, Move& move, const at::Tensor& weight_norm, const at::Tensor& update_norm) const;

  LambOptions options_;
};

}  // namespace npu_train
