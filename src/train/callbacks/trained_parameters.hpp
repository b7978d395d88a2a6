// The parameters that are trained, if callbacks freeze some of them or make them trainable again.
#pragma once

#include <string>

#include "npu_train/base/state.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/optim/ema.hpp"
#include "npu_train/optim/optimizer.hpp"
#include "npu_train/precision/precision.hpp"

namespace npu_train::detail {

class TrainedParameters final : public Stateful {
 public:
  // All arguments are borrowed; `ema` may be nullptr. `parameters`: those of the task.
  TrainedParameters(const ParameterSet& parameters, Precision& precision, Optimizer& optimizer, Ema* ema, Strategy& strategy)
      : parameters_(parameters), precision_(precision), optimizer_(optimizer), ema_(ema), strategy_(strategy) {}

  // From now on, exactly the parameters that require a gradient are trained. Error(Usage) if there are none, or if their state is sharded.
  void refresh();
  // Logs one warning for parameters that require a gradient and are not trained.
  void warn_of_untrained();

  // Empty until refresh() is called, which means the parameters that the run was set up with.
  State state() const override;
  void load_state(const State& state) override;

 private:
  std::string names() const;
  void train_only(const std::string& names);
  void change();

  const ParameterSet& parameters_;
  Precision& precision_;
  Optimizer& optimizer_;
  Ema* ema_;
  Strategy& strategy_;
  std::string at_start_;  // names of the parameters that were trained before the first refresh(); "" until then
  bool warned_ = false;
};

}  // namespace npu_train::detail
