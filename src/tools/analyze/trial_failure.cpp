#include "tools/analyze/trial_failure.hpp"

#include <array>
#include <string_view>

namespace npu_train::detail {
namespace {

bool has_any(const std::string& text, std::initializer_list<std::string_view> words) {
  for (const auto word : words)
    if (text.find(word) != std::string::npos) return true;
  return false;
}

std::string kind_of(const Error& error) {
  const std::string text = error.what();
  switch (error.kind()) {
    case ErrorKind::OutOfMemory:
      return "out_of_memory";
    case ErrorKind::Diverged:
      return "numbers";
    default:
      break;
  }
  // Some codes of torch_npu mean that an operator failed on the chip; others concern the chip, its driver or the connection.
  const bool ascend = has_any(text, {"NPU function error", "call acl api failed"});
  if (ascend && has_any(text, {"507014", "507015", "507016", "507017", "507018", "507034", "507035"})) return "operator";
  if (ascend || has_any(text, {"CUDA error: unspecified launch failure", "device is lost", "GPU is lost", "device lost"}))
    return "environment";
  if (has_any(text, {"Could not run 'aten::", "no kernel", "has no kernel", "unsupported operator", "is not supported on",
                     "not currently implemented for"}))
    return "operator";
  if (has_any(text, {"float64", "Double", "dtype", "not implemented for '", "ScalarType", "data type"})) return "dtype";
  if (has_any(text,
              {"size mismatch", "must match the size", "shapes cannot be multiplied", "is invalid for input of size", "Sizes of tensors"}))
    return "shape";
  // the device was loaded after autograd had counted the devices
  const bool late = text.find("device_ready_queues_") != std::string::npos;
  return late || error.kind() == ErrorKind::Device ? "environment" : "model";
}

std::string remedy_of(const std::string& kind) {
  if (kind == "operator")
    return "replace the operator, or run it on the host outside the step; npu_tool analyze lists the operators of the chip";
  if (kind == "dtype") return "cast to a dtype that the device supports: fp32 instead of fp64, int32 or int64 as the operator requires";
  if (kind == "shape") return "the shapes differ from those on the CPU: look for code that depends on the device or its memory format";
  if (kind == "out_of_memory") return "a smaller data.batch_size with trainer.accumulate_grad_batches, or trainer.gradient_checkpointing";
  if (kind == "environment")
    return "npu_tool doctor reports the software that is missing on this machine, and with --explain the meaning of an error code; a "
           "device "
           "must be loaded before the first backward of a process";
  if (kind == "numbers")
    return "look for overflows with dump.task=overflow_check; npu_tool validate names the first layer that differs from the CPU";
  return "the model runs on the CPU: look for code that behaves differently on a device, such as tensors that are not registered";
}

}  // namespace

TrialFailure classify(const Error& error, const std::string& op, const std::string& layer, const std::string& trial) {
  TrialFailure out{.kind = kind_of(error), .place = op, .remedy = {}};
  if (!layer.empty()) out.place += (out.place.empty() ? "" : " ") + std::string("in or after ") + layer;
  out.place += (out.place.empty() ? "" : ", ") + std::string("in ") + trial;
  out.remedy = remedy_of(out.kind);
  return out;
}

}  // namespace npu_train::detail
