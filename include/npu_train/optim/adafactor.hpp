/// Adafactor (Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", ICML 2018).
#pragma once

#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/optim/optimizer.hpp"

namespace npu_train {

struct AdafactorOptions {
  double lr = 1e-2;                     ///< upper bound of the relative step
  double beta2_decay = -0.8;            ///< step t forgets the share t^beta2_decay of the mean of squares
  std::vector<double> eps = {0, 1e-3};  ///< least root of the mean of squares (0: fp32's epsilon), and least norm of the weights
  double d = 1;                         ///< limit of the update's root mean square
  double weight_decay = 0;              ///< decoupled: p -= lr * weight_decay * p
  bool no_decay = false;                ///< no weight decay for biases and normalisation parameters
  static const ConfigTable<AdafactorOptions>& config_table();
};

/// Same as torch.optim.Adafactor: the state of a matrix is one number for each row and column, and the step is relative to the norm of the
/// parameter. It needs complete parameters, and therefore takes no slices.
class Adafactor final : public Optimizer {
 public:
  /// Error(Usage) for options out of range.
  explicit Adafactor(ParameterSet parameters, AdafactorOptions options = {});
  std::string name() const override { return "adafactor"; }
  ConfigNode options() const override { return to_node(options_); }

 protected:
  void update(Bucket& bucket) override;

 private:
  AdafactorOptions options_;
};

}  // namespace npu_train
