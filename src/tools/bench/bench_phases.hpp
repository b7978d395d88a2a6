// The time of the phases of training steps.
#pragma once

#include <string>

#include "npu_train/tools/analyze/profiler.hpp"
#include "npu_train/tools/bench/bench_report.hpp"

namespace npu_train::detail {

/// A profiler that ignores the windows before `from`: it neither times them nor waits for the device in them. Window `from` is the one that
/// a Profiler does not count.
class LateProfiler final : public StepObserver {
 public:
  LateProfiler(const Device& device, const ParameterSet& parameters, int64_t from) : profiler_(device, parameters), from_(from) {}
  void phase_begin(Phase phase, int64_t attempt, int micro_batch) override {
    if (attempt >= from_) profiler_.phase_begin(phase, attempt, micro_batch);
  }
  void phase_end(Phase phase, int64_t attempt, int micro_batch) override {
    if (attempt >= from_) profiler_.phase_end(phase, attempt, micro_batch);
  }
  void phase_error(Phase phase, int64_t attempt, int micro_batch, std::exception_ptr error) override {
    if (attempt >= from_) profiler_.phase_error(phase, attempt, micro_batch, error);
  }
  Profile profile() const { return profiler_.profile(); }

 private:
  Profiler profiler_;
  int64_t from_;
};

/// Returns the row of section "phases": shares of the time of the counted windows in step order, and the rest. `of`: "train batch 32".
BenchRow phase_row(const std::string& of, const Profile& profile);

}  // namespace npu_train::detail
