/// Puts a module into evaluation mode for a scope.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <vector>

namespace npu_train {

/// Sets evaluation mode; the destructor restores the mode of every submodule.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) : modules_(module.modules()) {
    for (const auto& m : modules_) training_.push_back(m->is_training());
    module.eval();
  }
  ~EvaluationMode() {
    for (size_t i = 0; i < modules_.size(); ++i)
      modules_[i]->train(training_[i]);  // parents first, in the order of modules(), because train() recurses
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<bool> training_;
};

}  // namespace npu_train
