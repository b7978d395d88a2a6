/// AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019), on the fused kernel of ATen.
#pragma once

#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/optim/optimizer.hpp"

namespace npu_train {

struct AdamWOptions {
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.999};  ///< decay of the running means of gradients and of their squares
  double eps = 1e-8;
  double weight_decay = 0.01;  ///< decoupled from the gradient: p -= lr * weight_decay * p
  bool amsgrad = false;        ///< divides by the largest mean of squares so far (Reddi et al., ICLR 2018)
  bool maximize = false;       ///< follows the gradient uphill
  bool no_decay = false;       ///< no weight decay for biases and normalisation parameters
  static const ConfigTable<AdamWOptions>& config_table();
};

/// Same as torch.optim.AdamW. Each parameter counts its steps on the device; skipped steps do not count.
class AdamW final : public Optimizer {
 public:
  /// Error(Usage) for options out of range.
  explicit AdamW(ParameterSet parameters, AdamWOptions options = {});
  std::string name() const override { return "adamw"; }
  bool takes_slices() const override { return true; }
  ConfigNode options() const override { return to_node(options_); }

 protected:
  void update(Bucket& bucket) override;

 private:
  AdamWOptions options_;
};

}  // namespace npu_train
