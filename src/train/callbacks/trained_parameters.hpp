// The set of trained parameters, which changes if callbacks freeze or unfreeze some of them.
#pragma once

#include <string>

#include "npu_train/base/state.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/optim/average.hpp"
#include "npu_train/optim/optimizer.hpp"
#include "npu_train/precision/precision.hpp"

namespace npu_train::detail {

class TrainedParameters final : public Stateful {
 public:
  // All arguments are borrowed; `average` may be nullptr. `parameters`: those of the task.
  TrainedParameters(const ParameterSet& parameters, Precision& precision, Optimizer& optimizer, WeightAverage* average, Strategy& strategy)
      : parameters_(parameters), precision_(precision), optimizer_(optimizer), average_(average), strategy_(strategy) {}

  // Trains, from now on, exactly the parameters that require a gradient. Error(Usage) if there are none, or if their state is sharded.
  void refresh();
  // Warns once of parameters that require a gradient but are not trained.
  void warn_of_untrained();

  // Returns an empty state until refresh() is called. An empty state means the parameters with which the run was set up.
  State state() const override;
  void load_state(const State& state) override;

 private:
  std::string names() const;
  void train_only(const std::string& names);
  void change();

  const ParameterSet& parameters_;
  Precision& precision_;
  Optimizer& optimizer_;
  WeightAverage* average_;
  Strategy& strategy_;
  std::string at_start_;  // names of the parameters that were trained before the first refresh(); "" until then
  bool warned_ = false;
};

}  // namespace npu_train::detail
