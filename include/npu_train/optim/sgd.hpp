/// Stochastic gradient descent with momentum, on the fused kernel of ATen.
#pragma once

#include "npu_train/core/config_table.hpp"
#include "npu_train/optim/optimizer.hpp"

namespace npu_train {

struct SgdOptions {
  double lr = 0.1;
  double momentum = 0.9;    ///< 0: no momentum and no memory for it
  double weight_decay = 0;  ///< L2: added to the gradient
  double dampening = 0;     ///< share of a gradient that does not enter the momentum, after the first step
  bool maximize = false;    ///< follows the gradient uphill
  bool nesterov = false;    ///< Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013
  bool no_decay = false;    ///< no weight decay for biases and normalisation parameters
  static const ConfigTable<SgdOptions>& config_table();
};

/// g += weight_decay * p;  m = momentum * m + (1 - dampening) * g, in the first step m = g;  p -= lr * m (nesterov: p -= lr * (g + momentum
/// * m)). Same as torch.optim.SGD. The momentum starts as zeros, so it stays defined if the first step is skipped. fp16 and bf16 parameters
/// are updated in fp32 arithmetic and rounded once.
class Sgd final : public Optimizer {
 public:
  /// Error(Usage) for options out of range, or nesterov without momentum or with dampening.
  explicit Sgd(ParameterSet parameters, SgdOptions options = {});
  std::string name() const override { return "sgd"; }
  bool takes_slices() const override { return true; }
  ConfigNode options() const override { return to_node(options_); }

 protected:
  void update(Bucket& bucket) override;

 private:
  void update_damped(Bucket& bucket, double decay);
  void update_low(Bucket& bucket, double decay);
  void fused(at::TensorList parameters, at::TensorList gradients, at::TensorList momentum, const Bucket& bucket, double decay) const;

  SgdOptions options_;
};

}  // namespace npu_train
