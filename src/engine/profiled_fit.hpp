// `trainer.profiler` of one fit().
#pragma once

#include <optional>
#include <string>

#include "npu_train/analyze/profiler.hpp"
#include "npu_train/engine/run_config.hpp"
#include "run_build.hpp"

namespace npu_train {

/// Watches `run` while it lives, where the configuration asks for it.
class ProfiledFit {
 public:
  ProfiledFit(const RunConfig& config, Run& run);
  ~ProfiledFit();
  ProfiledFit(const ProfiledFit&) = delete;
  ProfiledFit& operator=(const ProfiledFit&) = delete;

  /// Runs the loop, and reports, also where it ends by an error: that one goes on then, and what fails in the report is only logged.
  RunResult fit(const std::string& run_dir) const;

 private:
  /// Logs the profile and writes it into `run_dir`/profile: profile.json, profile.html, of `chrome` also trace.json. "" writes nothing.
  void report(const std::string& run_dir) const;

  Run& run_;
  std::optional<Profiler> profiler_;
};

}  // namespace npu_train
