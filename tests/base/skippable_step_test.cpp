#include "testing.hpp"

#include "npu_train/base/skippable_step.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

using namespace npu_train;

namespace {

// The smallest optimizer that fulfils the contract: w -= grad * inv_scale, unless found_inf is set.
class Descent final : public SkippableStep {
 public:
  explicit Descent(ParameterSet parameters) : parameters_(std::move(parameters)) {}
  void step(const StepDecision& decision) override {
    for (const auto& p : parameters_) {
      auto change = p.value.grad();
      if (decision.inv_scale.defined()) change = change * decision.inv_scale;
      if (decision.found_inf.defined()) change = change * (1 - decision.found_inf);
      p.value.data().sub_(change);
    }
  }
  const ParameterSet& parameters() const override { return parameters_; }

 private:
  ParameterSet parameters_;
};

}  // namespace

TEST_CASE("a decision without tensors means: ready, step") {
  const auto w = at::ones({2}).requires_grad_();
  w.mutable_grad() = at::ones({2}) * 8;
  Descent descent(ParameterSet({{"w", w}}));
  SkippableStep& optimizer = descent;
  optimizer.step({});
  CHECK(w[0].item<float>() == -7);
  optimizer.step({at::ones({}) / 8, at::zeros({})});
  CHECK(w[0].item<float>() == -8);
  optimizer.step({at::ones({}) / 8, at::ones({})});
  CHECK(w[0].item<float>() == -8);
  CHECK(optimizer.parameters().size() == 1);
}
