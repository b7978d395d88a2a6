// The process-wide settings of libtorch that a run wants, for a scope.
#pragma once

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "npu_train/engine/run_config.hpp"

namespace npu_train {

class ProcessState {
 public:
  explicit ProcessState(const RunConfig& config)
      : threads_(at::get_num_threads()),
        deterministic_(context().deterministicAlgorithms()),
        warn_only_(context().deterministicAlgorithmsWarnOnly()),
        fill_(context().deterministicFillUninitializedMemory()) {
    if (config.trainer.threads > 0) at::set_num_threads(static_cast<int>(config.trainer.threads));
    if (config.deterministic == "false") return;
    context().setDeterministicAlgorithms(true, config.deterministic == "warn");
    context().setDeterministicFillUninitializedMemory(false);  // filling every fresh tensor costs time and changes no result
  }
  ~ProcessState() {
    if (at::get_num_threads() != threads_) at::set_num_threads(threads_);
    context().setDeterministicAlgorithms(deterministic_, warn_only_);
    context().setDeterministicFillUninitializedMemory(fill_);
  }
  ProcessState(const ProcessState&) = delete;
  ProcessState& operator=(const ProcessState&) = delete;

 private:
  static at::Context& context() { return at::globalContext(); }
  int threads_;
  bool deterministic_, warn_only_, fill_;
};

}  // namespace npu_train
