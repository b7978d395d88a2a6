#include "npu_train/core/error.hpp"

#include <cxxabi.h>

#include <cerrno>
#include <filesystem>
#include <ios>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <typeinfo>

namespace npu_train {
namespace {

constexpr const char* kAscendHint = "npu_tool doctor --explain, with this line or its code, prints causes and remedies";
constexpr const char* kStreamHint =
    "torch_npu's messages name the operator that failed, or the rank that HCCL waits for; npu_tool doctor --explain, with the code, prints "
    "causes and remedies";
constexpr const char* kOperatorHint =
    "this CANN lacks the operator: install CANN's operators for your chip, in the version that your torch_npu names";
constexpr const char* kOneValueHint = "use larger images or batches; data.drop_last=true omits a last batch of one sample";
constexpr const char* kDtypeHint = "the inputs must have the dtype of the weights, which usually is float32: to(torch::kFloat)";
constexpr const char* kMemoryHint = "use a smaller data.batch_size (with more accumulate_grad_batches) or a lower precision";

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

struct Verdict {
  ErrorKind kind;
  const char* hint = "";
};

// Returns whether the type of `e`, or one of its bases, has this mangled name. libtorch's exceptions are recognised by name, because this
// room does not link libtorch.
bool is_a(const std::exception& e, std::string_view mangled) {
  const std::type_info* type = &typeid(e);
  while (type != nullptr && type->name() != mangled) {
    const auto* derived = dynamic_cast<const abi::__si_class_type_info*>(type);
    type = derived == nullptr ? nullptr : derived->__base_type;
  }
  return type != nullptr;
}

// Classifies torch_npu's errors by text, because the operators in torch_npu's queue throw std::runtime_error for every error.
std::optional<Verdict> judge_npu(std::string_view text) {
  if (has(text, "not in libopapi.so")) return Verdict{ErrorKind::Device, kOperatorHint};
  if (has(text, "ACL stream synchronize failed")) return Verdict{ErrorKind::Device, kStreamHint};
  if (has(text, "NPU function error") || has(text, "call acl api failed") || has(text, "NPU error"))
    return Verdict{ErrorKind::Device, kAscendHint};
  return std::nullopt;
}

// Classifies an exception of libtorch by its text, because most exceptions of libtorch have the same type.
Verdict judge(const std::exception& e, std::string_view text) {
  if (is_a(e, "N3c1016OutOfMemoryErrorE") || has(text, "can't allocate memory") || has(text, "out of memory") ||
      has(text, "ALLOC_FAILED") || has(text, "not enough memory")) {
    return {ErrorKind::OutOfMemory, kMemoryHint};
  }
  if (has(text, "more than 1 value per channel")) return {ErrorKind::Usage, kOneValueHint};
  const bool about_dtypes = has(text, "same dtype") || has(text, "should be the same") || has(text, "scalar type");
  if (about_dtypes && (has(text, "double") || has(text, "Double"))) return {ErrorKind::Usage, kDtypeHint};
  if (is_a(e, "N3c109DistErrorE")) return {ErrorKind::Peer, "check the log of the rank that failed first"};
  if (has(text, "INTERNAL ASSERT FAILED")) return {ErrorKind::Internal};
  if (const auto verdict = judge_npu(text)) return *verdict;
  if (is_a(e, "N3c1016AcceleratorErrorE") || has(text, "CUDA error") || has(text, "CUDA driver") || has(text, "No CUDA GPUs") ||
      has(text, "not linked with support for")) {
    return {ErrorKind::Device};
  }
  if (is_a(e, "N3c1019NotImplementedErrorE")) return {ErrorKind::Device, "this operation does not exist on the device of its inputs"};
  return {ErrorKind::Usage};
}

Verdict judge(const std::error_code& code) {
  if (code.category() == std::generic_category() || code.category() == std::system_category()) {
    switch (code.value()) {
      case ENOMEM:
        return {ErrorKind::OutOfMemory, kMemoryHint};
      case ENOSPC:
      case EDQUOT:
        return {ErrorKind::Checkpoint, "free some space or write to another disk"};
      case EROFS:
      case EACCES:
      case EPERM:
        return {ErrorKind::Checkpoint, "choose a writable folder"};
      case EFBIG:
      case EIO:
        return {ErrorKind::Checkpoint, "check the disk and its limits"};
      case EMFILE:
      case ENFILE:
        return {ErrorKind::Device, "raise the limit on open files (ulimit -n)"};
      case EAGAIN:
        return {ErrorKind::Device, "the system provides no more threads; lower num_workers or raise the limit (ulimit -u)"};
      default:
        break;
    }
  }
  return {ErrorKind::Data};
}

std::string without_frames(std::string_view text) {
  // Drops the C++ frames that c10 appends: they do not help a user, and remain in the cause.
  return std::string(text.substr(0, text.find("\nException raised from")));
}

}  // namespace

Error translate_current_exception(const std::string& where, ErrorKind unknown) {
  const auto cause = std::current_exception();
  if (!cause) return Error(ErrorKind::Internal, where, "there is no error to translate");
  try {
    std::rethrow_exception(cause);
  } catch (const Error& e) {
    return e;
  } catch (const std::bad_alloc&) {
    return Error(ErrorKind::OutOfMemory, where, "the host is out of memory", kMemoryHint, cause);
  } catch (const std::system_error& e) {  // also a file system error or a stream error
    const auto verdict = judge(e.code());
    return Error(verdict.kind, where, e.what(), verdict.hint, cause);
  } catch (const std::exception& e) {
    const auto text = without_frames(e.what());
    if (is_a(e, "N3c105ErrorE")) {
      const auto verdict = judge(e, text);
      return Error(verdict.kind, where, text, verdict.hint, cause);
    }
    const bool memory = has(text, "out of memory") || has(text, "can't allocate memory");
    if (const auto npu = judge_npu(text); npu && !memory) return Error(npu->kind, where, text, npu->hint, cause);
    return Error(memory ? ErrorKind::OutOfMemory : unknown, where, text, memory ? kMemoryHint : "", cause);
  } catch (...) {
    return Error(unknown, where, "an object that is not a std::exception was thrown", "", cause);
  }
}

}  // namespace npu_train
