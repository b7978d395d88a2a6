/// Adadelta (Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012).
#pragma once

#include "npu_train/core/config_table.hpp"
#include "npu_train/optim/optimizer.hpp"

namespace npu_train {

struct AdadeltaOptions {
  double lr = 1;
  double rho = 0.9;  ///< decay of the running means of squares
  double eps = 1e-6;
  double weight_decay = 0;  ///< L2: added to the gradient
  bool no_decay = false;    ///< no weight decay for biases and normalisation parameters
  static const ConfigTable<AdadeltaOptions>& config_table();
};

/// Same as torch.optim.Adadelta.
class Adadelta final : public Optimizer {
 public:
  /// Error(Usage) for options out of range.
  explicit Adadelta(ParameterSet parameters, AdadeltaOptions options = {});
  std::string name() const override { return "adadelta"; }
  bool takes_slices() const override { return true; }
  ConfigNode options() const override { return to_node(options_); }

 protected:
  void update(Bucket& bucket) override;

 private:
  AdadeltaOptions options_;
};

}  // namespace npu_train
