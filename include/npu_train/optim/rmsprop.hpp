/// RMSprop (Hinton, "Neural Networks for Machine Learning", lecture 6, 2012), as in PyTorch or as in TensorFlow.
#pragma once

#include "npu_train/core/config_table.hpp"
#include "npu_train/optim/optimizer.hpp"

namespace npu_train {

struct RmsPropOptions {
  double lr = 1e-2;
  double alpha = 0.99;  ///< decay of the running mean of squares
  double eps = 1e-8;
  double momentum = 0;
  double weight_decay = 0;  ///< L2: added to the gradient
  bool centered = false;    ///< divides by the standard deviation instead of the root of the mean of squares
  bool tensorflow = false;  ///< TensorFlow's variant: eps inside the root, a mean of squares that starts at 1, and lr inside the momentum
  bool no_decay = false;    ///< no weight decay for biases and normalisation parameters
  static const ConfigTable<RmsPropOptions>& config_table();
};

/// Same as torch.optim.RMSprop; with `tensorflow` the same as timm's RMSpropTF, for networks whose settings come from TensorFlow
/// (EfficientNet, MobileNet).
class RmsProp final : public Optimizer {
 public:
  /// Error(Usage) for options out of range.
  explicit RmsProp(ParameterSet parameters, RmsPropOptions options = {});
  std::string name() const override { return "rmsprop"; }
  bool takes_slices() const override { return true; }
  ConfigNode options() const override { return to_node(options_); }

 protected:
  void update(Bucket& bucket) override;

 private:
  RmsPropOptions options_;
};

}  // namespace npu_train
