// Plants a fault in one layer of an unchanged network: a kernel above all others intercepts aten::conv2d, linear, layer_norm and
// batch_norm, and changes the arguments or the result of the call that uses a chosen parameter. Recorders of operators are above that
// kernel and see the original arguments; autograd runs below it.
#pragma once

#include <ATen/core/stack.h>
#include <ATen/ops/clamp.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace npu_train::testing {

enum class FaultKind { Precision, Transpose, Gradient, Eps, Shuffle, Saturation, Bias };
inline constexpr FaultKind kFaultKinds[] = {FaultKind::Precision, FaultKind::Transpose,  FaultKind::Gradient, FaultKind::Eps,
                                            FaultKind::Shuffle,   FaultKind::Saturation, FaultKind::Bias};

inline const char* name_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::Precision:
      return "wrong precision";
    case FaultKind::Transpose:
      return "transposed weight";
    case FaultKind::Gradient:
      return "dropped gradient";
    case FaultKind::Eps:
      return "wrong eps";
    case FaultKind::Shuffle:
      return "changed shuffle";
    case FaultKind::Saturation:
      return "saturation";
    case FaultKind::Bias:
      break;
  }
  return "missing bias";
}

// Returns whether the fault changes an operator, so that FaultInjector plants it.
inline bool in_operator(FaultKind kind) {
  return kind == FaultKind::Precision || kind == FaultKind::Eps || kind == FaultKind::Saturation || kind == FaultKind::Bias;
}

// As long as an injector exists, the operators of this thread that use `parameter` are wrong. A process can have one injector at a time.
class FaultInjector {
 public:
  FaultInjector(FaultKind kind, const at::Tensor& parameter)
      : all_(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__), aten_(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__) {
    all_.fallback(torch::CppFunction::makeFallthrough());
    for (const char* name : {"conv2d", "linear", "layer_norm", "batch_norm"})
      aten_.impl(name, torch::CppFunction::makeFromBoxedKernel(c10::BoxedKernel::makeFromFunctor(
                           std::make_unique<Kernel>(kind, parameter.storage().unsafeGetStorageImpl(), hits_))));
    included_ = std::make_unique<c10::impl::IncludeDispatchKeyGuard>(kKey);
  }

  // Returns the number of calls that were changed.
  int64_t hits() const { return *hits_; }

 private:
  static constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

  class Kernel final : public c10::OperatorKernel {
   public:
    Kernel(FaultKind kind, const void* parameter, std::shared_ptr<int64_t> hits)
        : kind_(kind), parameter_(parameter), hits_(std::move(hits)) {}

    void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
      const c10::impl::ExcludeDispatchKeyGuard below(kKey);
      const auto& names = op.schema().arguments();
      const auto argument = [&](const char* name) -> c10::IValue* {
        for (size_t i = 0; i < names.size(); ++i)
          if (names[i].name() == name) return &(*stack)[stack->size() - names.size() + i];
        return nullptr;
      };
      const auto* weight = argument("weight");
      const bool meant = weight != nullptr && weight->isTensor() && weight->toTensor().has_storage() &&
                         weight->toTensor().storage().unsafeGetStorageImpl() == parameter_;
      if (meant) {
        ++*hits_;
        change(argument);
      }
      op.callBoxed(stack);
      if (meant && kind_ == FaultKind::Saturation) {
        const at::Tensor y = stack->back().toTensor();
        const double limit = 0.5 * y.detach().abs().max().item<double>();
        stack->back() = at::clamp(y, -limit, limit);
      }
    }

   private:
    template <class Argument>
    void change(const Argument& argument) const {
      if (kind_ == FaultKind::Precision)
        for (const char* name : {"input", "weight"})
          *argument(name) = argument(name)->toTensor().to(at::kBFloat16).to(argument(name)->toTensor().scalar_type());
      if (kind_ == FaultKind::Eps) *argument("eps") = 1e-3;
      if (kind_ == FaultKind::Bias) *argument("bias") = c10::IValue();
    }

    FaultKind kind_;
    const void* parameter_;
    std::shared_ptr<int64_t> hits_;
  };

  std::shared_ptr<int64_t> hits_ = std::make_shared<int64_t>(0);
  torch::Library all_, aten_;
  std::unique_ptr<c10::impl::IncludeDispatchKeyGuard> included_;
};

}  // namespace npu_train::testing
