#include "npu_train/precision/emulation.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/kernels/emulated_ops.hpp"
#include "precision/emulation_state.hpp"
#include "precision/hooks.hpp"

namespace npu_train {
namespace {

using c10::DispatchKeySet;
using torch::jit::Stack;
namespace ac = at::autocast;

thread_local std::optional<at::ScalarType> emulated_now;

constexpr auto kAutocast = c10::DispatchKey::AutocastCPU;

// View of an operator's arguments: the last `args` values of a stack.
class Call {
 public:
  Call(Stack& stack, size_t args) : stack_(stack), base_(stack.size() - args) {}
  const c10::IValue& operator[](size_t i) const { return stack_[base_ + i]; }
  const at::Tensor& tensor(size_t i) const { return (*this)[i].toTensor(); }
  std::optional<at::Tensor> optional(size_t i) const {
    if (!(*this)[i].isTensor() || !tensor(i).defined()) return std::nullopt;
    return tensor(i);
  }
  double number(size_t i) const { return (*this)[i].toScalar().toDouble(); }
  void answer(at::Tensor y) {
    stack_.resize(base_);
    stack_.emplace_back(std::move(y));
  }

 private:
  Stack& stack_;
  size_t base_;
};

bool is_low(const at::Tensor& t) { return t.is_cpu() && t.layout() == at::kStrided && t.scalar_type() == *emulated_now; }

// Tries to compute an operator; returns false if it does not support the arguments.
using Leaf = bool (*)(Call& call);

template <int kDims>
bool product(Call& call) {
  const at::Tensor a = call.tensor(0), b = call.tensor(1);
  if (!is_low(a) || !is_low(b) || a.dim() != kDims || b.dim() != kDims) return false;
  call.answer(detail::emulated_product(std::nullopt, a, b));
  return true;
}

template <int kDims>
bool product_and_sum(Call& call) {
  const at::Tensor c = call.tensor(0), a = call.tensor(1), b = call.tensor(2);
  if (!is_low(c) || !is_low(a) || !is_low(b) || a.dim() != kDims || b.dim() != kDims) return false;
  call.answer(detail::emulated_product(c, a, b, call.number(3), call.number(4)));
  return true;
}

// Computes the sum of a batch of products as one product of matrices that are concatenated along the inner dimension.
bool addbmm(Call& call) {
  const at::Tensor c = call.tensor(0), a = call.tensor(1), b = call.tensor(2);
  if (!is_low(c) || !is_low(a) || !is_low(b) || a.dim() != 3 || b.dim() != 3 || a.size(0) != b.size(0) || a.size(2) != b.size(1))
    return false;
  const int64_t inner = a.size(0) * a.size(2);  // set explicitly, because reshape cannot infer it if there are zero rows or columns
  const at::Tensor wide = a.permute({1, 0, 2}).reshape({a.size(1), inner}), high = b.reshape({inner, b.size(2)});
  call.answer(detail::emulated_product(c, wide, high, call.number(3), call.number(4)));
  return true;
}

bool mv(Call& call) {
  const at::Tensor a = call.tensor(0), b = call.tensor(1);
  if (!is_low(a) || !is_low(b) || a.dim() != 2 || b.dim() != 1) return false;
  call.answer(detail::emulated_product(std::nullopt, a, b.unsqueeze(1)).squeeze(1));
  return true;
}

bool addmv(Call& call) {
  const at::Tensor c = call.tensor(0), a = call.tensor(1), b = call.tensor(2);
  if (!is_low(c) || !is_low(a) || !is_low(b) || a.dim() != 2 || b.dim() != 1 || c.dim() > 1) return false;
  const at::Tensor column = c.dim() == 1 ? c.unsqueeze(1) : c;
  call.answer(detail::emulated_product(column, a, b.unsqueeze(1), call.number(3), call.number(4)).squeeze(1));
  return true;
}

bool dot(Call& call) {
  const at::Tensor a = call.tensor(0), b = call.tensor(1);
  if (!is_low(a) || !is_low(b) || a.dim() != 1 || b.dim() != 1) return false;
  call.answer(detail::emulated_product(std::nullopt, a.unsqueeze(0), b.unsqueeze(1)).squeeze());
  return true;
}

bool convolution(Call& call) {
  const at::Tensor x = call.tensor(0), weight = call.tensor(1);
  const auto bias = call.optional(2);
  if (!is_low(x) || !is_low(weight) || (bias && !is_low(*bias))) return false;
  const auto list = [&](size_t i) { return call[i].toIntVector(); };
  call.answer(detail::emulated_convolution(x, weight, bias,
                                           {.stride = list(3),
                                            .padding = list(4),
                                            .dilation = list(5),
                                            .output_padding = list(7),
                                            .transposed = call[6].toBool(),
                                            .groups = call[8].toInt()}));
  return true;
}

bool attention(Call& call) {
  const at::Tensor q = call.tensor(0), k = call.tensor(1), v = call.tensor(2);
  if (!is_low(q) || !is_low(k) || !is_low(v)) return false;
  call.answer(detail::emulated_attention(q, k, v, call.optional(3),
                                         {.dropout = call[4].toDouble(),
                                          .causal = call[5].toBool(),
                                          .scale = call[6].toOptional<double>(),
                                          .grouped_heads = call[7].toBool()}));
  return true;
}

// An operator that the emulation replaces. If `casts` is true, its inputs are rounded to the low precision, as libtorch's autocast does. If
// it is false, the operator is reached only from composite operators, which have rounded their inputs already. A null `leaf` means that the
// operator is composed of others in this table.
struct Hook {
  const char* name;
  const char* overload;
  bool casts;
  Leaf leaf;
};

constexpr std::array kHooks = {
    Hook{"aten::conv1d", "", true, nullptr},
    Hook{"aten::conv1d", "padding", true, nullptr},
    Hook{"aten::conv2d", "", true, nullptr},
    Hook{"aten::conv2d", "padding", true, nullptr},
    Hook{"aten::conv3d", "", true, nullptr},
    Hook{"aten::conv3d", "padding", true, nullptr},
    Hook{"aten::conv_transpose1d", "", true, nullptr},
    Hook{"aten::conv_transpose2d", "input", true, nullptr},
    Hook{"aten::conv_transpose3d", "input", true, nullptr},
    Hook{"aten::_convolution", "deprecated", true, convolution},
    Hook{"aten::convolution", "", false, convolution},
    Hook{"aten::linear", "", true, nullptr},
    Hook{"aten::matmul", "", true, nullptr},
    Hook{"aten::mm", "", true, product<2>},
    Hook{"aten::bmm", "", true, product<3>},
    Hook{"aten::addmm", "", true, product_and_sum<2>},
    Hook{"aten::baddbmm", "", true, product_and_sum<3>},
    Hook{"aten::addbmm", "", true, addbmm},
    Hook{"aten::mv", "", false, mv},
    Hook{"aten::addmv", "", false, addmv},
    Hook{"aten::dot", "", false, dot},
    Hook{"aten::scaled_dot_product_attention", "", true, attention},
};

// libtorch's own kernels of these operators, if any; set once, before the hooks are registered.
std::array<std::optional<c10::SafeKernelFunction>, kHooks.size()> originals;

void cast_tensors(Stack& stack, size_t args) {
  for (size_t i = stack.size() - args; i < stack.size(); ++i) {
    if (stack[i].isTensor() && stack[i].toTensor().defined()) stack[i] = ac::cached_cast(*emulated_now, stack[i].toTensor(), at::kCPU);
  }
}

template <size_t kIndex>
void hooked(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  constexpr const Hook& hook = kHooks[kIndex];
  const auto below = keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, kAutocast);
  if (!emulated_now ||
      ac::get_autocast_dtype(at::kCPU) != *emulated_now) {  // a region that the host program opens inside ours may use another dtype
    if (originals[kIndex]) return originals[kIndex]->callBoxed(op, keys, stack);
    return op.redispatchBoxed(below, stack);
  }
  const size_t args = op.schema().arguments().size();
  if (hook.casts) cast_tensors(*stack, args);
  Call call(*stack, args);
  if (hook.leaf != nullptr && hook.leaf(call)) return;
  op.redispatchBoxed(below, stack);
}

template <size_t... kIndex>
torch::Library* install(std::index_sequence<kIndex...>) {
  const detail::QuietRegistration quiet;
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto keep = [&](size_t i) {
    originals[i] = detail::kernel_of(dispatcher.findSchemaOrThrow(kHooks[i].name, kHooks[i].overload), kAutocast);
  };
  (keep(kIndex), ...);
  // Never freed: operators may run until the process ends.
  auto* library = new torch::Library(torch::Library::IMPL, "aten", kAutocast, __FILE__, __LINE__);
  const auto name = [](const Hook& h) { return *h.overload == '\0' ? std::string(h.name) : std::string(h.name) + "." + h.overload; };
  (library->impl(name(kHooks[kIndex]).c_str(), torch::CppFunction::makeFromBoxedFunction<&hooked<kIndex>>()), ...);
  return library;
}

}  // namespace

const std::vector<std::string>& cpu_low_precision_names() {
  static const std::vector<std::string> names = {"auto", "native", "emulated"};
  return names;
}

CpuLowPrecision cpu_low_precision_of(const std::string& name) {
  const auto& names = cpu_low_precision_names();
  const auto found = std::find(names.begin(), names.end(), name);
  check(found != names.end(), ErrorKind::Usage, "cpu_low_precision", "'", name, "' is not one of ", join(names));
  return static_cast<CpuLowPrecision>(found - names.begin());
}

bool emulates(CpuLowPrecision choice, at::ScalarType dtype) {
  if (choice != CpuLowPrecision::Auto) return choice == CpuLowPrecision::Emulated;
  const auto has = backend_of({}).capabilities({});
  return dtype == at::kHalf ? !has.native_fp16 : !has.native_bf16;
}

std::optional<at::ScalarType> emulated_dtype() { return emulated_now; }

namespace detail {

void install_emulation() {
  [[gnu::used]] static const auto* const library =
      install(std::make_index_sequence<kHooks.size()>());  // `used` keeps it reachable for leak checkers
}

std::optional<at::ScalarType> exchange_emulated(std::optional<at::ScalarType> dtype) {
  if (dtype) install_emulation();
  return std::exchange(emulated_now, dtype);
}

}  // namespace detail
}  // namespace npu_train
