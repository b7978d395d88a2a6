/// Makes an operation that bypasses the dispatcher visible to profilers, the operation counter and dumps.
#pragma once

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

#include <string>
#include <string_view>
#include <vector>

namespace npu_train::detail {

/// Suffix for the name of a range that names a value instead of a layer; profilers show it.
inline constexpr std::string_view kNamedValue = " (value)";

/// A range named `name` with inputs and output. `inputs` is called only if an observer or profiler is active.
class RecordedOp {
 public:
  template <class Inputs>
  RecordedOp(const std::string& name, Inputs inputs, at::RecordScope scope = at::RecordScope::FUNCTION) : record_(scope) {
    if (!record_.isActive()) return;
    inputs_ = inputs();
    record_.before(name, c10::ArrayRef<const c10::IValue>(inputs_.data(), inputs_.size()),
                   static_cast<int64_t>(at::sequence_number::peek()));
  }
  /// Reports the output to observers, and returns it.
  at::Tensor result(at::Tensor y) {
    if (record_.needsOutputs()) record_.setOutputs(std::vector<c10::IValue>{y});
    return y;
  }

 private:
  std::vector<c10::IValue> inputs_;  // declared before record_, which reads it until the range ends
  at::RecordFunction record_;
};

}  // namespace npu_train::detail
