/// Adagrad (Duchi et al., "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization", JMLR 2011).
#pragma once

#include "npu_train/core/config_table.hpp"
#include "npu_train/optim/optimizer.hpp"

namespace npu_train {

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;                   ///< the learning rate in step t is lr / (1 + (t - 1) * lr_decay)
  double weight_decay = 0;               ///< L2: added to the gradient
  double initial_accumulator_value = 0;  ///< initial value of the sums of squares
  double eps = 1e-10;
  bool no_decay = false;  ///< no weight decay for biases and normalisation parameters
  static const ConfigTable<AdagradOptions>& config_table();
};

/// Same as torch.optim.Adagrad.
class Adagrad final : public Optimizer {
 public:
  /// Error(Usage) for options out of range.
  explicit Adagrad(ParameterSet parameters, AdagradOptions options = {});
  std::string name() const override { return "adagrad"; }
  bool takes_slices() const override { return true; }
  ConfigNode options() const override { return to_node(options_); }

 protected:
  void update(Bucket& bucket) override;

 private:
  AdagradOptions options_;
};

}  // namespace npu_train
