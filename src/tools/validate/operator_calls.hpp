// The operators of a training step with their inputs, and a run of each one alone.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/step_observer.hpp"
#include "npu_train/precision/precision.hpp"
#include "npu_train/trace/op_mode.hpp"

namespace npu_train::detail {

struct OperatorCall {
  c10::OperatorHandle op;
  std::string name, layer;
  std::string inputs_text;              // shapes and dtypes
  std::vector<c10::IValue> inputs{};    // copies; empty if the call was not kept
  std::vector<at::Tensor> gradients{};  // gradients of the loss with respect to the results; undefined if there is none
  bool low = false;                     // whether the call was inside autocast
  int64_t count = 0;
  std::string why_not{};  // reason why it cannot be compared
};

// Keeps the operators of the forward passes of one step on the CPU, once for each combination of shapes, dtypes and options. If a step is
// repeated because of an overflow, the repetition replaces it.
class OperatorRecorder final : public OpMode, public StepObserver {
 public:
  // Keeps inputs of at most `bytes`.
  OperatorRecorder(const ParameterSet& parameters, int64_t bytes);
  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack) override;
  void phase_begin(Phase phase, int64_t attempt, int micro_batch) override;
  void phase_end(Phase phase, int64_t attempt, int micro_batch) override;
  void phase_error(Phase phase, int64_t attempt, int micro_batch, std::exception_ptr error) override;
  const std::vector<OperatorCall>& calls() const { return *calls_; }

 private:
  void keep(OperatorCall& call, at::ArrayRef<c10::IValue> inputs);
  void watch(size_t index, at::ArrayRef<c10::IValue> results);

  std::unordered_map<const c10::TensorImpl*, std::string> layers_;
  int64_t bytes_left_;
  const int64_t bytes_;
  std::shared_ptr<std::vector<OperatorCall>> calls_;  // shared with the hooks that receive gradients
  std::unordered_map<std::string, size_t> index_;
  std::optional<OpModeGuard> guard_;
};

struct NamedResult {
  std::string name;
  at::Tensor value;  // on the host
};

struct AloneResult {
  std::vector<NamedResult> results;    // outputs, then gradients of the inputs
  std::vector<NamedResult> arguments;  // inputs without a gradient, read after the call, since some operators write into them
};

// Runs the operator with its inputs on `device`, and its backward pass if it has gradients. A call that was inside autocast runs inside the
// autocast of `precision`. Errors are libtorch's.
AloneResult run_alone(const OperatorCall& call, const c10::Device& device, const Precision& precision);

// Like run_alone(), but on the CPU in fp64 and without autocast. Inputs and gradients are changed by a random relative amount of at most
// `change`.
AloneResult run_in_fp64(const OperatorCall& call, double change);

}  // namespace npu_train::detail
