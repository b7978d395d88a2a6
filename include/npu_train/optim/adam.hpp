/// Adam (Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015), on the fused kernel of ATen.
#pragma once

#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/optim/optimizer.hpp"

namespace npu_train {

struct AdamOptions {
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.999};  ///< decay of the running means of gradients and of their squares
  double eps = 1e-8;
  double weight_decay = 0;  ///< L2: added to the gradient (AdamW decouples it)
  bool amsgrad = false;     ///< divides by the largest mean of squares so far (Reddi et al., ICLR 2018)
  bool maximize = false;    ///< follows the gradient uphill
  bool no_decay = false;    ///< no weight decay for biases and normalisation parameters
  static const ConfigTable<AdamOptions>& config_table();
};

/// Same as torch.optim.Adam. Each parameter counts its steps on the device; skipped steps do not count.
class Adam final : public Optimizer {
 public:
  /// Error(Usage) for options out of range.
  explicit Adam(ParameterSet parameters, AdamOptions options = {});
  std::string name() const override { return "adam"; }
  bool takes_slices() const override { return true; }
  ConfigNode options() const override { return to_node(options_); }

 protected:
  void update(Bucket& bucket) override;

 private:
  AdamOptions options_;
};

}  // namespace npu_train
