#include "npu_train/nn/evaluation_mode.hpp"

#include "testing.hpp"

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

using namespace npu_train;

TEST_CASE("every submodule evaluates for the scope, and gets its own mode back") {
  torch::nn::ModuleList inner(torch::nn::Dropout(0.5));
  torch::nn::ModuleList net(torch::nn::Linear(2, 2), inner, torch::nn::Dropout(0.5));
  inner->eval();  // like a frozen part of a network that is trained
  {
    const EvaluationMode evaluation(*net);
    for (const auto& m : net->modules()) CHECK_FALSE(m->is_training());
  }
  CHECK(net->is_training());
  CHECK(net[0]->is_training());
  CHECK_FALSE(inner->is_training());
  CHECK_FALSE(inner[0]->is_training());
  CHECK(net[2]->is_training());
}
