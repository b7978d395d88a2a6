#include "npu_train/precision/fp32_ops.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "precision/hooks.hpp"

namespace npu_train {

// The operators of an Fp32Ops, and the hooks that they activate in a region.
struct Fp32Ops::Set {
  explicit Set(const std::vector<std::string>& all) {
    for (const auto& name : all)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    met = std::vector<std::atomic<bool>>(names.size());
  }
  std::vector<std::string> names;
  std::map<const void*, size_t> hooks;  // index in `names` of each hook
  mutable std::vector<std::atomic<bool>> met;

  // Returns the flag that records a call of `hook`; nullptr if the hook is inactive.
  std::atomic<bool>* find(const void* hook) const {
    const auto found = hooks.find(hook);
    return found == hooks.end() ? nullptr : &met[found->second];
  }
};

namespace {

constexpr const char* kFp32Ops = "amp.fp32_ops";

size_t slot(c10::DeviceType type) { return type == c10::DeviceType::CPU ? 0 : type == c10::DeviceType::CUDA ? 1 : 2; }
thread_local std::array<Fp32Ops, 3> ops_now;
thread_local std::array<const Fp32Ops::Set*, 3> sets_now = {};  // raw pointers to ops_now's sets: reading them needs no thread-local guard

bool is_reduced(const at::Tensor& t) { return t.defined() && (t.scalar_type() == at::kHalf || t.scalar_type() == at::kBFloat16); }
at::Tensor as_float(const at::Tensor& t) { return is_reduced(t) ? t.to(at::kFloat) : t; }

void cast_to_fp32(torch::jit::Stack& stack, size_t args) {
  for (size_t i = stack.size() - args; i < stack.size(); ++i) {
    auto& value = stack[i];
    if (value.isTensor()) {
      if (is_reduced(value.toTensor())) value = as_float(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> cast;
      for (const at::Tensor& t : value.toTensorVector()) cast.push_back(as_float(t));
      value = std::move(cast);
    }
  }
}

// The fp32 kernel of one overload, for the autocast key of one type of device.
class Fp32Hook final : public c10::OperatorKernel {
 public:
  Fp32Hook(c10::DeviceType type, c10::DispatchKey key, std::optional<c10::SafeKernelFunction> original)
      : type_(type), key_(key), original_(std::move(original)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) const {
    const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key_);
    const auto* set = sets_now[slot(type_)];
    auto* own = set == nullptr ? nullptr : set->find(this);
    if (own == nullptr) {
      if (original_) return original_->callBoxed(op, keys, stack);
      return op.redispatchBoxed(below, stack);
    }
    own->store(true, std::memory_order_relaxed);
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(key_);
    cast_to_fp32(*stack, op.schema().arguments().size());
    op.redispatchBoxed(below, stack);
  }

 private:
  c10::DeviceType type_;
  c10::DispatchKey key_;
  std::optional<c10::SafeKernelFunction> original_;
};

bool takes_tensor(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const c10::Argument& a) { return a.type()->str().find("Tensor") != std::string::npos; });
}

// Returns why an overload cannot be cast; "" if it can.
std::string obstacle(const c10::FunctionSchema& schema) {
  if (schema.name().ends_with("_backward")) return "runs in the backward pass, in the dtypes of its forward";
  if (!takes_tensor(schema)) return "takes no tensor";
  if (schema.is_mutable()) return "writes into an argument, whose dtype stays";
  for (const auto& result : schema.returns())
    if (result.alias_info() != nullptr) return "gives a view of its input, or the input itself";
  return "";
}

// Returns the overloads of a name that can be cast; Error(Usage) if there are none.
std::vector<c10::OperatorHandle> overloads_of(const std::string& name) {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<c10::OperatorHandle> out;
  std::vector<std::string> all;
  std::string why;
  for (const auto& known : dispatcher.getAllOpNames()) {
    if (!known.name.starts_with("aten::")) continue;
    all.push_back(known.name.substr(6));
    if (all.back() != name) continue;
    const auto op = dispatcher.findSchema(known);
    if (!op) continue;
    if (const auto reason = obstacle(op->schema()); reason.empty())
      out.push_back(*op);
    else
      why = reason;
  }
  if (!out.empty()) return out;
  if (!why.empty()) throw Error(ErrorKind::Usage, kFp32Ops, "the operator '" + name + "' cannot be computed in fp32 alone: it " + why);
  const auto near = nearest_name(name, all);
  throw Error(ErrorKind::Usage, kFp32Ops, "'" + name + "' is no operator of ATen", near.empty() ? "" : "did you mean " + near + "?");
}

// Returns the operators of torch.nn's classes of layers; classes for several dimensions are listed without the dimension.
const std::map<std::string, std::vector<std::string>>& operators_of_classes() {
  static const std::map<std::string, std::vector<std::string>> all = {
      {"BatchNorm", {"batch_norm"}},
      {"BatchNorm1d", {"batch_norm"}},
      {"BatchNorm2d", {"batch_norm"}},
      {"BatchNorm3d", {"batch_norm"}},
      {"Conv1d", {"conv1d"}},
      {"Conv2d", {"conv2d"}},
      {"Conv3d", {"conv3d"}},
      {"GELU", {"gelu"}},
      {"GroupNorm", {"group_norm"}},
      {"InstanceNorm", {"instance_norm"}},
      {"InstanceNorm1d", {"instance_norm"}},
      {"InstanceNorm2d", {"instance_norm"}},
      {"InstanceNorm3d", {"instance_norm"}},
      {"LayerNorm", {"layer_norm"}},
      {"LogSoftmax", {"log_softmax"}},
      {"RMSNorm", {"rms_norm"}},
      {"SiLU", {"silu"}},
      {"Softmax", {"softmax", "scaled_dot_product_attention"}},
  };
  return all;
}

// Returns the hook of an overload; registers it on the first call.
const Fp32Hook* hook_of(const c10::OperatorHandle& op, c10::DeviceType type) {
  // Nothing of this is destroyed: operators may run until the process ends.
  static auto* const mutex = new std::mutex;
  static auto* const hooks = new std::map<std::pair<c10::DispatchKey, std::string>, const Fp32Hook*>;
  static auto* const libraries = new std::map<c10::DispatchKey, torch::Library>;
  const auto key = at::autocast::get_autocast_dispatch_key_from_device_type(type);
  const auto& schema = op.schema();
  const std::string name = schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
  const std::lock_guard<std::mutex> lock(*mutex);
  auto& hook = (*hooks)[{key, name}];
  if (hook != nullptr) return hook;
  const detail::QuietRegistration quiet;
  auto& library = libraries->try_emplace(key, torch::Library::IMPL, "aten", key, __FILE__, __LINE__).first->second;
  auto kernel = std::make_unique<Fp32Hook>(type, key, detail::kernel_of(op, key));
  const auto* made = kernel.get();
  library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
  return hook = made;
}

}  // namespace

Fp32Ops::Fp32Ops(const std::vector<std::string>& names, const Device& device) {
  check_fp32_ops(names);
  if (names.empty()) return;
  const auto type = device.c10().type();
  backend_of(device).capabilities(device);                        // a device that is loaded later would register its kernels over the hooks
  if (type == c10::DeviceType::CPU) detail::install_emulation();  // comes first, so that an operator in both lists computes in fp32
  auto set = std::make_shared<Set>(names);
  for (size_t i = 0; i < set->names.size(); ++i)
    for (const auto& op : overloads_of(set->names[i])) set->hooks[hook_of(op, type)] = i;
  set_ = std::move(set);
}

const std::vector<std::string>& Fp32Ops::names() const {
  static const std::vector<std::string> none;
  return set_ ? set_->names : none;
}

std::vector<std::string> Fp32Ops::met() const {
  std::vector<std::string> out;
  for (size_t i = 0; i < names().size(); ++i)
    if (set_->met[i].load(std::memory_order_relaxed)) out.push_back(set_->names[i]);
  return out;
}

void check_fp32_ops(const std::vector<std::string>& names) {
  for (const auto& name : names) overloads_of(name);
}

std::vector<std::string> fp32_ops_of_class(const std::string& name) {
  const auto& all = operators_of_classes();
  const auto found = all.find(name);
  return found != all.end() ? found->second : std::vector<std::string>{};
}

const std::vector<std::string>& fp32_classes() {
  static const auto names = [] {
    std::vector<std::string> out;
    for (const auto& entry : operators_of_classes()) out.push_back(entry.first);
    return out;
  }();
  return names;
}

bool in_fp32_ops(std::string_view op) {
  const auto* set = sets_now[0];
  return set != nullptr && std::find(set->names.begin(), set->names.end(), op) != set->names.end();
}

namespace detail {

Fp32Ops exchange_fp32_ops(c10::DeviceType type, Fp32Ops ops) {
  const auto i = slot(type);
  sets_now[i] = ops.set();
  return std::exchange(ops_now[i], std::move(ops));
}

Fp32Ops current_fp32_ops(c10::DeviceType type) { return ops_now[slot(type)]; }

}  // namespace detail
}  // namespace npu_train
