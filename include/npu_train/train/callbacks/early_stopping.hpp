/// Counts validations without improvement. fit() uses an EarlyStopping for the section `early_stopping`; a program that owns its loop can
/// use one, too:
///
///   npu_train::EarlyStopping early({.enabled = true, .monitor = "val/loss", .patience = 3});
///   while (!early.is_due()) {
///     const auto report = trainer.train_epoch();
///     early.note(report->train, report->val);
///   }
#pragma once

#include <cstdint>
#include <limits>

#include "npu_train/base/state.hpp"
#include "npu_train/train/options.hpp"
#include "npu_train/train/report.hpp"

namespace npu_train {

class EarlyStopping final : public Stateful {
 public:
  /// Error(Usage) for options out of range.
  explicit EarlyStopping(EarlyStoppingOptions options);

  /// Notes the averages of an epoch, or of a validation inside one. Empty averages are ignored, so an epoch without a validation counts
  /// only if the monitor is a metric of the training data. It counts as no improvement if the monitored value is missing or NaN, or if the
  /// loss on the same data is not finite.
  void note(const Scalars& train, const Scalars& val);
  /// Returns whether there were `patience` validations (epochs, for a monitor of the training data) in a row without improvement.
  bool is_due() const { return options_.enabled && without_improvement_ >= options_.patience; }
  const EarlyStoppingOptions& options() const { return options_; }

  State state() const override;
  void load_state(const State& state) override;

 private:
  EarlyStoppingOptions options_;
  int64_t without_improvement_ = 0;
  double best_ = std::numeric_limits<double>::quiet_NaN();
};

}  // namespace npu_train
