/// Environment variables of Ascend NPUs, CUDA and libtorch: their allowed values, harmful values, and the recommended values for this
/// machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "npu_train/tools/doctor/checks.hpp"

namespace npu_train {

/// A row of src/tools/doctor/facts/environment.tsv.
struct KnownVariable {
  std::string name;
  std::string kind;      ///< choice, int, folder, file, devices, alloc, text
  std::string allowed;   ///< for a choice "0|1"; for an int "120..7200", where the upper end may be missing
  std::string fallback;  ///< the default value
  std::string harmful;   ///< values that are unsuitable for production runs, "1|2"
  std::string wrong;     ///< consequence of an invalid value: "fail" ends a run, "warn" is ignored or misread
  std::string says;      ///< effect of the variable; for harmful values, the reason
  std::string instead;   ///< the variable that replaced it, if any
};

const std::vector<KnownVariable>& known_variables();

/// Judges the variables that are set. Returns one finding for each variable whose value is invalid or harmful or that another variable has
/// replaced, and for each contradiction between variables. Without any of these, returns a single finding that lists the variables that are
/// set. Values of unknown variables are never read.
std::vector<Finding> lint_environment(const HostView& host);

/// Returns the recommended environment of this machine as a file for `source`: each line sets or removes a variable, with a comment that
/// gives the reason. Variables that are already correct are not repeated.
std::string required_environment(const HostView& host, const ProcessFacts& process);

}  // namespace npu_train
