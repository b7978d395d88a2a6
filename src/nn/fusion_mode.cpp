#include "nn/fusion_mode.hpp"

#include <ATen/ops/full.h>

#include <algorithm>
#include <limits>

#include "npu_train/base/storage.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

size_t weight_position(const std::string& op) {
  if (op == "aten::addmm" || op == "aten::layer_norm") return 2;
  return 1;
}

const void* key_of(const std::string& op, const c10::IValue* args, bool attention) {
  return attention ? nullptr : storage_of(args[weight_position(op)].toTensor());
}

// Returns whether a call has the sizes of a chain except for the batch. Attention has no weight to identify it, so a chain is used for all
// calls with these sizes.
bool same_heads(const OpChain& chain, const c10::IValue* args) {
  const auto alike = [](const at::Tensor& a, const at::Tensor& b) {
    return a.dim() == b.dim() && a.size(-1) == b.size(-1) && a.size(-2) == b.size(-2) && a.scalar_type() == b.scalar_type();
  };
  const auto& first = chain.steps[0].args;
  return alike(first[0].toTensor(), args[0].toTensor()) && alike(first[1].toTensor(), args[1].toTensor());
}

std::vector<int64_t> sizes_of_first_step(const OpChain& chain, const c10::IValue* args) {
  if (chain.kind == ChainKind::LayerNorm) return args[0].toTensor().sizes().vec();
  if (chain.kind == ChainKind::Conv) {
    return conv_output_sizes(args[0].toTensor(), args[1].toTensor(), args[3].toIntVector(), args[4].toIntVector(), args[5].toIntVector());
  }
  const bool linear = chain.steps[0].name() == "aten::linear", addmm = chain.steps[0].name() == "aten::addmm";
  auto out = args[addmm ? 1 : 0].toTensor().sizes().vec();
  out.back() = args[addmm ? 2 : 1].toTensor().size(linear ? 0 : -1);
  return out;
}

}  // namespace

FusionPlan::FusionPlan(std::vector<std::shared_ptr<const FusedChain>> chains) {
  for (auto& fused : chains) {
    const auto& head = fused->chain.steps[0];
    if (fused->released) released_.emplace(storage_of(fused->chain.weight), Released{fused->chain.layer, fused->chain.weight});
    by_weight_[key_of(head.name(), head.args.data(), fused->chain.kind == ChainKind::Attention)].push_back(std::move(fused));
  }
}

std::shared_ptr<const FusedChain> FusionPlan::begins(const c10::OperatorHandle& op, const c10::IValue* args) const {
  const auto name = op.schema().name();
  const auto look = [&](const void* key) -> std::shared_ptr<const FusedChain> {
    const auto found = by_weight_.find(key);
    if (found == by_weight_.end()) return nullptr;
    for (const auto& fused : found->second)
      if (fused->chain.steps[0].matches(op, args) && (key != nullptr || same_heads(fused->chain, args))) return fused;
    return nullptr;
  };
  const size_t at = weight_position(name);
  if (op.schema().arguments().size() <= at || !args[at].isTensor()) return nullptr;
  const auto* key = storage_of(args[at].toTensor());
  if (auto fused = key == nullptr ? nullptr : look(key)) return fused;
  return name == "aten::matmul" || name == "aten::bmm" ? look(nullptr) : nullptr;
}

void FusionPlan::check_unmoved() const {
  for (const auto& [storage, released] : released_)
    check(storage_of(released.parameter) == storage, ErrorKind::Usage, "fuse", released.layer,
          ": the module was moved or cast after fuse, which had taken its weight over; hint: move and cast the model before fuse, or fuse "
          "with keep_weights = true");
}

std::string FusionPlan::released_layer(const c10::IValue* args, size_t count) const {
  const auto layer = [&](const at::Tensor& t) {
    const auto found = t.defined() ? released_.find(storage_of(t)) : released_.end();
    return found == released_.end() ? std::string() : found->second.layer;
  };
  std::string out;
  for (size_t i = 0; i < count && out.empty() && !released_.empty(); ++i) {
    if (args[i].isTensor()) out = layer(args[i].toTensor());
    if (args[i].isTensorList())
      for (const at::Tensor& t : args[i].toTensorVector())
        if (out.empty()) out = layer(t);
  }
  return out;
}

void FusionMode::call(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  drop_forgotten();
  const size_t count = op.schema().arguments().size();
  auto* args = stack.data() + (stack.size() - count);
  if (!stand_ins_.empty()) {
    if (carry_on(op, stack, args)) return;
    // The recorded forward has no operator for this contiguous(), because its tensor already had the requested layout. The fused result has
    // that layout, too.
    const auto* asked = op.schema().name() == "aten::contiguous" ? find(args[0]) : nullptr;
    if (asked != nullptr && !asked->passed) {
      const at::Tensor same = args[0].toTensor();
      stack.resize(stack.size() - count);
      stack.emplace_back(same);
      return;
    }
    settle_all(args, count);
    settle_what_reads(op, args);
  }
  if (auto fused = plan_.begins(op, args)) return begin(std::move(fused), stack, args);
  run(op, stack, args, count);
}

void FusionMode::run(const c10::OperatorHandle& op, torch::jit::Stack& stack, const c10::IValue* args, size_t count) {
  const auto layer = plan_.released_layer(args, count);
  const auto* storage = layer.empty() ? nullptr : storage_of(args[0].isTensor() ? args[0].toTensor() : at::Tensor());
  call_below(op, stack);
  if (layer.empty()) return;
  // Creating a view does not read values.
  const bool view = stack.back().isTensor() && storage != nullptr && storage_of(stack.back().toTensor()) == storage;
  check(view, ErrorKind::Usage, "fuse", layer, ": ", op.schema().name(),
        " reads its weight in another way than in the example, and that was given up; hint: fuse with keep_weights = true, or with an "
        "example that takes this way");
}

// Computes pending stand-ins whose inputs `op` overwrites.
void FusionMode::settle_what_reads(const c10::OperatorHandle& op, const c10::IValue* args) {
  if (stand_ins_.empty() || !op.schema().is_mutable()) return;
  for (size_t i = 0; i < op.schema().arguments().size(); ++i) {
    const auto* alias = op.schema().arguments()[i].alias_info();
    if (alias == nullptr || !alias->isWrite() || !args[i].isTensor()) continue;
    const auto* written = storage_of(args[i].toTensor());
    std::vector<at::Tensor> readers;
    for (const auto& s : stand_ins_) {
      const bool reads = std::any_of(s.inputs.begin(), s.inputs.end(), [&](const at::Tensor& t) { return storage_of(t) == written; });
      auto alive = s.impl.lock();
      if (reads && alive && !s.passed) readers.emplace_back(at::Tensor(std::move(alive)));
    }
    for (const auto& t : readers) settle(t);
  }
}

FusionMode::StandIn* FusionMode::find(const c10::IValue& value) {
  if (!value.isTensor()) return nullptr;
  for (auto& s : stand_ins_)
    if (s.impl._unsafe_get_target() == value.toTensor().unsafeGetTensorImpl()) return &s;
  return nullptr;
}

void FusionMode::begin(std::shared_ptr<const FusedChain> fused, torch::jit::Stack& stack, c10::IValue* args) {
  const auto& head = fused->chain.steps[0];
  const size_t count = head.args.size();
  std::vector<at::Tensor> inputs;
  for (const auto i : head.open) inputs.push_back(args[i].toTensor());
  const at::Tensor y = stand_in(inputs[0], sizes_of_first_step(fused->chain, args));
  std::vector<torch::jit::Stack> calls(1, torch::jit::Stack(args, args + count));
  stand_ins_.push_back({c10::weak_intrusive_ptr<Impl>(y.getIntrusivePtr()), std::move(fused), std::move(calls), std::move(inputs)});
  stack.resize(stack.size() - count);
  stack.emplace_back(y);
}

bool FusionMode::carry_on(const c10::OperatorHandle& op, torch::jit::Stack& stack, c10::IValue* args) {
  const size_t count = op.schema().arguments().size();
  for (size_t i = 0; i < count; ++i) {
    auto* from = find(args[i]);
    if (from == nullptr || from->passed || from->calls.size() >= from->fused->chain.steps.size()) continue;
    const auto fused = from->fused;
    const auto& step = fused->chain.steps[from->calls.size()];
    if (step.flow != static_cast<int>(i) || !step.matches(op, args)) continue;
    StandIn next{from->impl, fused, from->calls, from->inputs};
    next.calls.emplace_back(args, args + count);
    from->passed = true;
    for (const auto j : step.open)
      if (j != i) {
        settle_all(args + j, 1);
        next.inputs.push_back(args[j].toTensor());
      }
    const at::Tensor before = args[i].toTensor();
    const bool in_place = op.schema().name().ends_with('_'), last = next.calls.size() == fused->chain.steps.size();
    at::Tensor y = before;
    if (last) {
      const NoOpMode below;
      const at::Tensor value = fused->form.run(next.inputs);
      if (in_place)
        y.unsafeGetTensorImpl()->shallow_copy_from(value.getIntrusivePtr());
      else
        y = value;
    } else if (!in_place) {
      y = stand_in(before, before.sizes());  // in attention, only the last step (the second product) changes the sizes
    }
    if (in_place) std::erase_if(stand_ins_, [&](const StandIn& s) { return s.impl._unsafe_get_target() == before.unsafeGetTensorImpl(); });
    if (!last) {
      next.impl = c10::weak_intrusive_ptr<Impl>(y.getIntrusivePtr());
      stand_ins_.push_back(std::move(next));
    }
    stack.resize(stack.size() - count);
    stack.emplace_back(y);
    return true;
  }
  return false;
}

void FusionMode::settle_all(c10::IValue* args, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (args[i].isTensor()) settle(args[i].toTensor());
    if (args[i].isTensorList())
      for (const at::Tensor& t : args[i].toTensorVector()) settle(t);
  }
}

void FusionMode::settle(const at::Tensor& t) {
  if (!t.defined()) return;
  const auto* found = find(c10::IValue(t));
  if (found == nullptr) return;
  const auto wanted = *found;
  check(!wanted.fused->released, ErrorKind::Usage, "fuse", wanted.fused->chain.layer, " (", wanted.fused->chain.pattern,
        "): its result is used in another way than in the example, and the weights for that were given up; hint: fuse with "
        "keep_weights = true, or with an example that takes this way; a fused model cannot be trained");
  at::Tensor value;
  for (size_t i = 0; i < wanted.calls.size(); ++i) {
    auto stack = wanted.calls[i];
    const auto& step = wanted.fused->chain.steps[i];
    if (step.flow >= 0) stack[static_cast<size_t>(step.flow)] = value;
    call_below(step.op, stack);
    value = stack[0].toTensor();
  }
  t.unsafeGetTensorImpl()->shallow_copy_from(value.getIntrusivePtr());
  std::erase_if(stand_ins_, [&](const StandIn& s) { return s.impl._unsafe_get_target() == t.unsafeGetTensorImpl(); });
}

// Returns an expanded NaN scalar: it needs no memory, and unnoticed reads become visible.
at::Tensor FusionMode::stand_in(const at::Tensor& like, at::IntArrayRef sizes) {
  const NoOpMode below;
  return at::full({}, std::numeric_limits<double>::quiet_NaN(), like.options()).expand(sizes);
}

void FusionMode::drop_forgotten() {
  std::erase_if(stand_ins_, [](const StandIn& s) { return s.impl.expired(); });
}

}  // namespace npu_train::detail
