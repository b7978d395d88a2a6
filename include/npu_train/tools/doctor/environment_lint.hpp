/// Environment variables of Ascend NPUs, CUDA and libtorch: which values they take, which harm, and which ones this machine should have.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "npu_train/tools/doctor/checks.hpp"
#include "npu_train/tools/doctor/finding.hpp"
#include "npu_train/tools/doctor/host_view.hpp"

namespace npu_train {

/// A row of src/tools/doctor/facts/environment.tsv.
struct KnownVariable {
  std::string name;
  std::string kind;      ///< choice, int, folder, file, devices, alloc, text
  std::string allowed;   ///< of a choice "0|1"; of int "120..7200", the end may be open
  std::string fallback;  ///< what holds when it is not set
  std::string harmful;   ///< values that do not belong into production runs, "1|2"
  std::string wrong;     ///< what a value that is not allowed does: "fail" ends a run, "warn" is ignored or misread
  std::string says;      ///< what it does; for harmful values, why not
  std::string instead;   ///< for a variable that was replaced: the one to use
};

const std::vector<KnownVariable>& known_variables();

/// Judges the variables that are set: first one finding for each that is wrong, then one that names those that are fine. Values of other
/// variables are never read.
std::vector<Finding> lint_environment(const HostView& host);

/// The environment that this machine should have, as a file for `source`: each line is set or removed with a comment that says why.
/// Variables that are right already are not repeated.
std::string wanted_environment(const HostView& host, const ProcessFacts& process);

}  // namespace npu_train
