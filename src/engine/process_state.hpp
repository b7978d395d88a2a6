// The process-wide settings of libtorch that a run wants, for a scope. What a run does not ask for is left alone.
#pragma once

#include <ATen/Context.h>

#include "npu_train/device/threads.hpp"
#include "npu_train/engine/run_config.hpp"

namespace npu_train {

class ProcessState {
 public:
  explicit ProcessState(const RunConfig& config)
      : threads_(static_cast<int>(config.trainer.threads)), changed_(config.deterministic != "false") {
    if (!changed_) return;
    auto& context = at::globalContext();
    deterministic_ = context.deterministicAlgorithms();
    warn_only_ = context.deterministicAlgorithmsWarnOnly();
    fill_ = context.deterministicFillUninitializedMemory();
    context.setDeterministicAlgorithms(true, config.deterministic == "warn");
    context.setDeterministicFillUninitializedMemory(false);  // filling every fresh tensor costs time and changes no result
  }
  ~ProcessState() {
    if (!changed_) return;
    at::globalContext().setDeterministicAlgorithms(deterministic_, warn_only_);
    at::globalContext().setDeterministicFillUninitializedMemory(fill_);
  }
  ProcessState(const ProcessState&) = delete;
  ProcessState& operator=(const ProcessState&) = delete;

 private:
  ThreadCount threads_;
  bool changed_;
  bool deterministic_ = false, warn_only_ = false, fill_ = true;
};

}  // namespace npu_train
