/// Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023): steps by the sign of a momentum, with one state per
/// parameter.
#pragma once

#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/optim/optimizer.hpp"

namespace npu_train {

struct LionOptions {
  double lr = 1e-4;                         ///< should be 3 to 10 times smaller than AdamW's
  std::vector<double> betas = {0.9, 0.99};  ///< share of the momentum in the step, and decay of the momentum
  double weight_decay = 0;                  ///< decoupled: p -= lr * weight_decay * p
  bool no_decay = false;                    ///< no weight decay for biases and normalisation parameters
  static const ConfigTable<LionOptions>& config_table();
};

/// Same as timm's Lion and the reference implementation (google/automl).
class Lion final : public Optimizer {
 public:
  /// Error(Usage) for options out of range.
  explicit Lion(ParameterSet parameters, LionOptions options = {});
  std::string name() const override { return "lion"; }
  bool takes_slices() const override { return true; }
  ConfigNode options() const override { return to_node(options_); }

 protected:
  void update(Bucket& bucket) override;

 private:
  LionOptions options_;
};

}  // namespace npu_train
