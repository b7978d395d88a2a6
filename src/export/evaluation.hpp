// A module in evaluation mode for a while.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <vector>

namespace npu_train::detail {

/// Afterwards every part of the module is in its own mode again.
class Evaluation {
 public:
  explicit Evaluation(torch::nn::Module& module) : modules_(module.modules()) {
    for (const auto& m : modules_) training_.push_back(m->is_training());
    module.eval();
  }
  ~Evaluation() {
    for (size_t i = 0; i < modules_.size(); ++i) modules_[i]->train(training_[i]);  // outer ones first: train() reaches what is below
  }
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

 private:
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<bool> training_;
};

}  // namespace npu_train::detail
