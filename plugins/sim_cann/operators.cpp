#include "operators.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>

namespace sim_cann {

void Out::operator=(const Tensor& value) const {
  if (!tensor_.defined()) return;
  if (tensor_.sizes() != value.sizes()) {
    // A caller may ask for the result of a full reduction as [] or [1].
    if (tensor_.numel() != value.numel()) {
      throw std::runtime_error(c10::str("the result has sizes ", value.sizes(), ", but the caller expects ", tensor_.sizes()));
    }
    tensor_.copy_(value.reshape(tensor_.sizes()));
    return;
  }
  if (!tensor_.is_same(value)) tensor_.copy_(value);
}

void Found::operator=(const Tensor& value) const {
  TORCH_CHECK(value.numel() <= room_.numel(), "the result has ", value.numel(), " elements, but there is room for ", room_.numel());
  if (value.numel() > 0) room_.view(-1).slice(0, 0, value.numel()).copy_(value.reshape(-1));
  handle_->sizes = value.sizes().vec();
}

namespace {
// Whether the operator only moves or converts values, and therefore accepts every dtype.
bool only_moves(std::string_view name) {
  return name == "aclnnCast" || name == "aclnnInplaceCopy" || name == "aclnnInplaceZero" || name == "aclnnInplaceFillScalar" ||
         name == "aclnnInplaceOne";
}
}  // namespace

int check_dtypes(const char* name, const Visitor& tensors) {
  std::string wrong;
  tensors([&](const aclTensor& t, bool) {
    if (only_moves(name)) return;
    if (t.dtype == at::kDouble || t.dtype == at::kComplexDouble || (t.dtype == at::kBFloat16 && !soc().has_bf16)) wrong = text_of(t);
  });
  if (wrong.empty()) return kSuccess;
  return fail(kInvalidArgument,
              "EZ1001: " + describe(name, tensors) + ": " + wrong + " has a dtype that " + soc().name + " does not compute");
}

std::string describe(const char* name, const Visitor& tensors) {
  std::string out = std::string(name) + "(";
  tensors([&](const aclTensor& t, bool) {
    out += (out.back() == '(' ? "" : ", ") + (t.dtype == at::ScalarType::Undefined ? "none" : text_of(t));
  });
  return out + ")";
}

namespace {
// Runs an operator without gradients. An error names the operator and its tensors.
void run_operator(const aclOpExecutor& executor) {
  const at::AutoGradMode no_gradients(false);
  const at::AutoDispatchBelowADInplaceOrView below;
  try {
    executor.run();
  } catch (const c10::Error& e) {
    throw std::runtime_error(describe(executor.name, executor.tensors) + ": " + e.what_without_backtrace());
  } catch (const std::exception& e) {
    throw std::runtime_error(describe(executor.name, executor.tensors) + ": " + e.what());
  }
}

Accesses accesses_of(const aclOpExecutor& executor) {
  Accesses out;
  if (!races_are_checked()) return out;
  executor.tensors([&](const aclTensor& t, bool writes) {
    if (t.data == nullptr || t.dtype == at::ScalarType::Undefined) return;
    const size_t width = at::elementSize(t.dtype);
    const char* first = static_cast<const char*>(t.data) + t.offset * static_cast<int64_t>(width);
    out.push_back({first, width, t.sizes, t.strides, writes, text_of(t)});
  });
  return out;
}
}  // namespace

void saturate(const Out& out) {
  const Tensor& t = out;
  if (!t.defined() || !t.is_floating_point() || t.numel() == 0) return;
  if (at::isfinite(t).all().item<bool>()) return;
  raise_float_status(current_device());
  const double largest = t.scalar_type() == at::kHalf    ? 65504.0
                         : t.scalar_type() == at::kFloat ? 3.4028234663852886e38
                                                         : 3.3895313892515355e38;
  t.nan_to_num_(0.0, largest, -largest);
}

int launch(aclOpExecutor* executor, void* stream) {
  const std::shared_ptr<aclOpExecutor> held(executor);
  // The caller keeps the handle of a result with unknown sizes until it has waited for the stream. It cannot wait while the stream is
  // captured.
  if (held->finds_sizes && is_captured(stream))
    held->run = [] { throw std::runtime_error("a graph cannot replay an operator that finds the sizes of its result"); };
  enqueue(
      stream, held->name, [held] { run_operator(*held); }, accesses_of(*held));
  return kSuccess;
}

}  // namespace sim_cann

SIM_CANN_ENTRY int aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  delete executor;
  return sim_cann::kSuccess;
}
