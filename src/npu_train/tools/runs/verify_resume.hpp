/// Proves that a run can be resumed: N steps, a checkpoint, a new trainer and N more steps must equal 2N steps without interruption, bit
/// for bit.
#pragma once

#include <string>
#include <vector>

#include "npu_train/engine/run_config.hpp"

namespace npu_train {

struct VerifyResumeOptions {
  int64_t steps = 3;                     ///< N: optimizer steps before and after the checkpoint
  std::vector<std::string> leave_out{};  ///< parts that are deliberately not restored, to show that the check detects this
};

struct VerifyResumeReport {
  bool passed = false;
  std::vector<std::string> not_restored;  ///< parts that differ right after the resume
  std::vector<std::string> drifted;       ///< parts that differ N steps later
  int64_t steps = 0;
  std::string digest;  ///< digest of the final weights of the uninterrupted run
  /// Returns a few lines for people.
  std::string str() const;
};

/// Runs the configuration three times with its own data and model, and writes one checkpoint to a temporary folder. Uses the caller's
/// number of threads. All files of a normal run are disabled.
VerifyResumeReport verify_resume(RunConfig config, const Parts& parts = builtin_parts(), const VerifyResumeOptions& options = {});

}  // namespace npu_train
