/// Proves that a configuration is repeatable: two runs with the same seed have bit-equal results, and the number of loader workers has no
/// effect.
#pragma once

#include <string>
#include <vector>

#include "npu_train/engine/run_config.hpp"

namespace npu_train {

struct VerifyDeterminismOptions {
  int64_t steps = 3;          ///< optimizer steps per run
  int64_t other_workers = 3;  ///< loader workers of the third run; 0: samples are loaded in the training thread
};

struct VerifyDeterminismReport {
  bool passed = false;
  std::vector<std::string> repeat;   ///< parts of the state that differ in a second run
  std::vector<std::string> workers;  ///< parts that change with the number of workers
  int64_t steps = 0;
  std::string digest;  ///< digest of the final weights of the first run
  /// Returns a few lines for people, with a remedy if it failed.
  std::string str() const;
};

/// Runs the configuration three times for a few steps, without output files. All runs use the configuration's number of CPU threads, since
/// sums depend on it.
VerifyDeterminismReport verify_determinism(const RunConfig& config, const Parts& parts = builtin_parts(),
                                           const VerifyDeterminismOptions& options = {});

}  // namespace npu_train
