#include "dist/gradient_hook.hpp"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace npu_train::detail {
namespace {

class AfterAccumulation final : public torch::autograd::PostAccumulateGradHook {
 public:
  AfterAccumulation(std::unique_ptr<PostAccumulateGradHook> before, std::function<void()> fn)
      : before_(std::move(before)), fn_(std::move(fn)) {}
  void operator()(const torch::autograd::Variable& tensor) override {
    if (before_) (*before_)(tensor);
    fn_();
  }
  std::unique_ptr<PostAccumulateGradHook> release() { return std::move(before_); }

 private:
  std::unique_ptr<PostAccumulateGradHook> before_;
  std::function<void()> fn_;
};

}  // namespace

void hook_gradient(const at::Tensor& parameter, std::function<void()> fn) {
  auto& hook = torch::autograd::impl::post_acc_grad_hooks(parameter);
  hook = std::make_unique<AfterAccumulation>(std::move(hook), std::move(fn));
}

void unhook_gradient(const at::Tensor& parameter) {
  auto& hook = torch::autograd::impl::post_acc_grad_hooks(parameter);
  if (auto* own = dynamic_cast<AfterAccumulation*>(hook.get())) hook = own->release();
}

void add_to_master(const Parameter& p) {
  if (!p.computed.defined() || !p.computed.grad().defined()) return;
  auto& gradient = p.computed.mutable_grad();
  if (auto& sum = p.value.mutable_grad(); sum.defined())
    sum.add_(gradient);
  else
    sum = gradient.to(p.value.scalar_type());
  gradient.reset();
}

}  // namespace npu_train::detail
