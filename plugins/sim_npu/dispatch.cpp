// Runs operators on the device with the host's kernels on the same memory, and applies the SoC's rules.
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <torch/library.h>

#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "sim.hpp"

namespace npu_train::sim {
namespace {

using torch::jit::Stack;

// Facts about an operator that do not depend on a call; each is looked up once.
struct Operator {
  std::string name;
  size_t arguments, returns;
  OperatorRule rule;
  std::vector<bool> generator, written;  // by argument
  std::vector<bool> changed;             // arguments that are written, including undeclared writes (running statistics)
  bool draws_unasked;                    // draws from the host's default generator without a generator argument
  bool moves_data;                       // only copies values, so it cannot overflow
  // Computes low precision in fp32 and rounds once: products, as in a cube unit, and operators whose host kernels are less accurate.
  bool widens;
  std::atomic<bool> warned{false}, warned_of_dtype{false};
};

bool one_of(const std::string& name, std::initializer_list<const char*> names) {
  for (const char* n : names)
    if (name == n) return true;
  return false;
}

Operator& operator_of(const c10::OperatorHandle& handle) {
  static std::mutex mutex;
  static auto* known = new std::unordered_map<c10::OperatorName, std::unique_ptr<Operator>>;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& found = (*known)[handle.operator_name()];
  if (found) return *found;
  found = std::make_unique<Operator>();
  const auto& schema = handle.schema();
  const std::string base = schema.name().substr(schema.name().rfind(':') + 1);
  found->name = schema.overload_name().empty() ? base : base + "." + schema.overload_name();
  found->arguments = schema.arguments().size();
  found->returns = schema.returns().size();
  found->rule = rule_of(base, schema.overload_name());
  for (const auto& a : schema.arguments()) {
    const auto type = a.type()->kind() == c10::TypeKind::OptionalType ? a.type()->castRaw<c10::OptionalType>()->getElementType() : a.type();
    found->generator.push_back(type->kind() == c10::TypeKind::GeneratorType);
    found->written.push_back(a.alias_info() != nullptr && a.alias_info()->isWrite());
    found->changed.push_back(found->written.back() || a.name() == "running_mean" || a.name() == "running_var");
  }
  found->draws_unasked = base == "native_dropout";
  found->moves_data = one_of(base, {"copy_", "fill_", "zero_", "index_select", "gather", "cat", "stack", "clone", "masked_fill",
                                    "masked_fill_", "where", "index", "eq", "ne", "isnan", "isinf", "isfinite", "constant_pad_nd"});
  found->widens =
      one_of(base, {"mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "convolution", "convolution_backward",
                    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward", "_fused_sgd_"});
  return *found;
}

void say(const std::string& text) {
  if (sim().warn != nullptr) sim().warn(text.c_str());
}

void refuse_or_warn(std::atomic<bool>& warned, const std::string& text) {
  if (sim().unsupported == 0) return;
  TORCH_CHECK_NOT_IMPLEMENTED(sim().unsupported < 2, text, " (sim_npu.unsupported_ops: error)");
  if (!warned.exchange(true)) say(text);
}

void apply_policy(Operator& op) {
  if (op.rule.on_host) ++sim().cpu_fallbacks;
  if (op.rule.support == Support::Unsupported) {
    refuse_or_warn(op.warned, "sim_npu: '" + op.name + "' is not supported on the Ascend " + sim().soc + ", by the vendor's list");
  } else if (op.rule.support == Support::CpuFallback) {
    refuse_or_warn(op.warned, "sim_npu: '" + op.name + "' has no kernel on the Ascend " + sim().soc +
                                  "; a real chip runs it on the host, with two copies");
  }
}

// Warns about a dtype that the vendor's list does not name for the first input. It is not refused, since it is only unverified.
void apply_dtypes(Operator& op, at::ScalarType first) {
  const std::string name = first == at::kHalf ? "fp16" : first == at::kBFloat16 ? "bf16" : first == at::kFloat ? "fp32" : "";
  if (sim().unsupported == 0 || name.empty() || op.rule.dtypes.empty() || op.rule.dtypes.find(name) != std::string::npos) return;
  if (op.warned_of_dtype.exchange(true)) return;
  say("sim_npu: '" + op.name + "' in " + name + ": the vendor's list for the Ascend contains only " + op.rule.dtypes +
      "; verify on the chip");
}

bool is_low(const at::Tensor& t) { return t.scalar_type() == at::kHalf || t.scalar_type() == at::kBFloat16; }

// A device tensor, its host view, and the argument of the kernel: the view, or its values in fp32.
struct Crossed {
  at::Tensor own, view, given;
  bool written;
};

// Converts the values of one call for the host, and its results back.
class Crossing {
 public:
  Crossing(Operator& op, Stack& stack) : op_(op), stack_(stack), base_(stack.size() - op.arguments) {}

  void to_host() {
    for (size_t i = 0; i < op_.arguments; ++i) find_device(stack_[base_ + i]);
    for (size_t i = 0; i < op_.arguments; ++i) {
      c10::IValue& v = stack_[base_ + i];
      const bool written = op_.written[i];
      if (v.isTensor()) {
        v = host(v.toTensor(), written);
      } else if (v.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& t : v.toTensorList()) list.push_back(host(t, written));
        v = list;
      } else if (v.isOptionalTensorList()) {
        c10::List<std::optional<at::Tensor>> list;
        for (const std::optional<at::Tensor>& t : v.toOptionalTensorList())
          list.push_back(t && on_device(*t) ? std::optional(host(*t, written)) : t);  // indices may be on the host
        v = list;
      } else if (v.isDevice()) {
        note(v.toDevice());
        v = c10::Device(c10::kCPU);
      } else if (op_.generator[i]) {
        v = v.isNone() ? host_generator(device()) : host_generator(v.toGenerator());
      }
    }
  }

  void to_device() {
    for (const auto& c : std::vector<Crossed>(crossed_)) {
      if (!c.written) continue;
      if (c.own.is_sparse()) {
        set_parts(c.own, c.given, back(parts_of(c.given)));
        continue;
      }
      if (!c.given.is_same(c.view)) c.view.resize_(c.given.sizes()).copy_(c.given);
      saturate(c.view);
      take_over(c.own, c.view);
    }
    for (size_t i = stack_.size() - op_.returns; i < stack_.size(); ++i) {
      c10::IValue& v = stack_[i];
      if (v.isTensor()) {
        v = back(v.toTensor());
      } else if (v.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& t : v.toTensorList()) list.push_back(back(t));
        v = list;
      }
    }
  }

  c10::DeviceIndex device() const { return device_ < 0 ? current_device() : device_; }
  std::optional<at::ScalarType> first_dtype() const { return first_; }  // dtype of the first device tensor
  uint64_t shapes() const { return shapes_; }

 private:
  void note(c10::Device d) {
    if (d.type() != kType) return;
    const auto index = d.has_index() ? d.index() : current_device();
    TORCH_CHECK(device_ < 0 || device_ == index, "sim_npu: ", op_.name, " got tensors of npu:", static_cast<int>(device_),
                " and npu:", static_cast<int>(index), "; all must be on the same device");
    device_ = index;
  }

  void find_device(const c10::IValue& v) {
    if (v.isTensor() && on_device(v.toTensor())) note(v.toTensor().device());
    if (v.isTensorList())
      for (const at::Tensor& t : v.toTensorList())
        if (on_device(t)) note(t.device());
  }

  at::Tensor host(const at::Tensor& t, bool written) {
    if (!t.defined()) return t;
    TORCH_CHECK(on_device(t) || t.dim() == 0 || t.device().type() != c10::kCPU, "sim_npu: ", op_.name, " got a host tensor of shape ",
                t.sizes(), " together with tensors of npu:", static_cast<int>(device()), "; move it first with .to(device)");
    if (!on_device(t)) return t;
    remember_shape(t);
    TORCH_CHECK(t.scalar_type() != at::kDouble || op_.moves_data, "sim_npu: ", op_.name,
                " in float64: an Ascend NPU has no fp64 units; hint: .to(at::kFloat)");
    TORCH_CHECK(t.scalar_type() != at::kBFloat16 || sim().bf16 || op_.moves_data, "sim_npu: ", op_.name, " in bf16: an Ascend ", sim().soc,
                " has no units for it; hint: fp16, as in precision: 16-mixed");
    if (!first_) first_ = t.scalar_type();
    if (t.is_sparse()) return host_sparse(t, written);
    const at::Tensor view = host_view(t);
    const bool widen = op_.widens && is_low(t);
    if (widen) low_ = t.scalar_type();
    crossed_.push_back({t, view, widen ? view.to(at::kFloat) : view, written});
    return crossed_.back().given;
  }

  at::Tensor host_sparse(const at::Tensor& t, bool written) {
    const Parts own = parts_of(t), view = {host_view(own.indices), host_view(own.values)};
    crossed_.push_back({own.indices, view.indices, view.indices, false});
    crossed_.push_back({own.values, view.values, view.values, false});
    const at::Tensor given = sparse_tensor(c10::DispatchKey::SparseCPU, t, view);
    crossed_.push_back({t, given, given, written});
    return given;
  }

  Parts back(const Parts& parts) { return {back(parts.indices), back(parts.values)}; }

  void remember_shape(const at::Tensor& t) {
    const auto mix = [this](uint64_t x) { shapes_ = (shapes_ ^ x) * 0x9e3779b97f4a7c15ULL; };
    mix(static_cast<uint64_t>(t.scalar_type()) + 1);
    for (const auto s : t.sizes()) mix(static_cast<uint64_t>(s) + 7);
  }

  at::Tensor back(const at::Tensor& result) {
    if (!result.defined() || !result.device().is_cpu()) return result;
    for (const auto& c : crossed_)
      if (c.given.is_same(result)) return c.own;
    if (result.is_sparse()) return sparse_tensor(c10::DispatchKey::SparsePrivateUse1, result, back(parts_of(result)));
    const at::Tensor t = low_ && result.scalar_type() == at::kFloat && !keeps_fp32() ? result.to(*low_) : result;
    for (const auto& c : crossed_)
      if (!c.view.is_sparse() && c.view.storage().unsafeGetStorageImpl() == t.storage().unsafeGetStorageImpl())
        return on_storage_of(c.own, t);
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) return t;
    saturate(t);
    return device_tensor(t, device());
  }

  // The logsumexp of attention is always fp32.
  bool keeps_fp32() { return op_.name == "_scaled_dot_product_flash_attention_for_cpu" && returned_++ == 1; }

  // A copy within one dtype cannot overflow; copy_from handles conversions.
  void saturate(const at::Tensor& t) {
    if (!op_.moves_data) sim::saturate(t, device());
  }

  Operator& op_;
  Stack& stack_;
  size_t base_;
  c10::DeviceIndex device_ = -1;
  std::vector<Crossed> crossed_;
  std::optional<at::ScalarType> first_, low_;
  int returned_ = 0;
  uint64_t shapes_ = 0;
};

// Lends the device's generator state to the host's default generator, for kernels that use only that one.
class BorrowedGenerator {
 public:
  explicit BorrowedGenerator(c10::DeviceIndex device)
      : host_(at::globalContext().defaultGenerator(c10::kCPU)), device_(host_generator(device)), before_(host_.get_state()) {
    host_.set_state(device_.get_state());
  }
  ~BorrowedGenerator() {
    device_.set_state(host_.get_state());
    host_.set_state(before_);
  }
  BorrowedGenerator(const BorrowedGenerator&) = delete;
  BorrowedGenerator& operator=(const BorrowedGenerator&) = delete;

 private:
  at::Generator host_, device_;
  at::Tensor before_;
};

void count_shape(const Operator& op, uint64_t shapes) {
  static std::mutex mutex;
  static auto* seen = new std::unordered_set<uint64_t>;
  const uint64_t key = std::hash<std::string>()(op.name) ^ shapes;
  const std::lock_guard<std::mutex> lock(mutex);
  if (seen->insert(key).second) ++sim().recompilations;
}

// Runs `op` on the stack's arguments with the host's kernel for `key`.
void compute(Operator& op, const c10::OperatorHandle& handle, Stack* stack, c10::DispatchKey key = c10::DispatchKey::CPU) {
  ++sim().ops;
  Crossing crossing(op, *stack);
  crossing.to_host();
  if (const auto first = crossing.first_dtype()) apply_dtypes(op, *first);
  count_shape(op, crossing.shapes());
  std::optional<BorrowedGenerator> generator;
  if (op.draws_unasked) generator.emplace(crossing.device());
  handle.redispatchBoxed(c10::DispatchKeySet(key), stack);
  crossing.to_device();
}

// Copies a replayed result to the memory that the graph has for it.
void put(const at::Tensor& result, const at::Tensor& place) {
  if (!on_device(result) || result.storage().unsafeGetStorageImpl() == place.storage().unsafeGetStorageImpl()) return;
  TORCH_CHECK(result.sizes() == place.sizes(), "sim_npu: a replay returned shape ", result.sizes(), "; the graph has ", place.sizes());
  host_view(place).copy_(host_view(result));
}

void put(const c10::IValue& result, const c10::IValue& place) {
  if (result.isTensor()) return put(result.toTensor(), place.toTensor());
  if (!result.isTensorList()) return;
  const auto from = result.toTensorVector(), to = place.toTensorVector();
  for (size_t i = 0; i < from.size(); ++i) put(from[i], to[i]);
}

// Runs `op` and records it in the graph being captured.
void record(Recording& graph, Operator& op, const c10::OperatorHandle& handle, Stack* stack) {
  Stack given;
  for (size_t i = 0; i < op.arguments; ++i) {
    const auto& value = (*stack)[stack->size() - op.arguments + i];
    if (op.changed[i]) graph.will_write(value);
    given.push_back(Recording::keep(value));
  }
  compute(op, handle, stack);
  Stack results;
  for (size_t i = stack->size() - op.returns; i < stack->size(); ++i) results.push_back(Recording::keep((*stack)[i]));
  graph.add([&op, handle, given = std::move(given), results = std::move(results)] {
    Stack again = given;
    compute(op, handle, &again);
    for (size_t i = 0; i < results.size(); ++i) put(again[again.size() - results.size() + i], results[i]);
  });
}

void run(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack* stack) {
  Operator& op = operator_of(handle);
  apply_policy(op);
  if (keys.has(c10::DispatchKey::SparsePrivateUse1)) {
    refuse_in_graph("a sparse tensor was used");
    return compute(op, handle, stack, c10::DispatchKey::SparseCPU);
  }
  if (auto* graph = recording())
    record(*graph, op, handle, stack);
  else
    compute(op, handle, stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run>()); }
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run>()); }

namespace {

// Registers the sparse operators of the host. For some of them, libtorch has a kernel for all other devices that only throws.
void register_sparse_operators() {
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::SparsePrivateUse1, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasSchema() || name.getNamespace() != "aten" || !op->hasKernelForDispatchKey(c10::DispatchKey::SparseCPU) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::SparsePrivateUse1))
      continue;
    const auto full = name.name.substr(name.name.rfind(':') + 1) + (name.overload_name.empty() ? "" : "." + name.overload_name);
    library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run>());
  }
}

}  // namespace

void register_native_operators() {
  // For these operators the chip and the host have a kernel each, but libtorch would compose them from others on an unknown device.
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& [name, overload] : native_operators()) {
    const auto op = dispatcher.findSchema({"aten::" + name, overload});
    if (!op || op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
    library->impl((overload.empty() ? name : name + "." + overload).c_str(), torch::CppFunction::makeFromBoxedFunction<&run>());
  }
  // On all other devices, libtorch's kernels of these two operators only ask for an override.
  for (const char* op : {"convolution", "convolution_backward"}) library->impl(op, torch::CppFunction::makeFromBoxedFunction<&run>());
  register_sparse_operators();
}

}  // namespace npu_train::sim
