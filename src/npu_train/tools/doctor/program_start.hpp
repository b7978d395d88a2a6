/// Why a program that links libtorch does not start: the loader ends it before it can say anything itself.
#pragma once

#include <optional>
#include <string>

#include "npu_train/tools/doctor/finding.hpp"
#include "npu_train/tools/doctor/host_view.hpp"

namespace npu_train {

/// Starts `program` (a path) with --parse-only, which ends it at once. Returns nullopt if it starts, otherwise a finding "libtorch" of area
/// "system" that fails: the library that is missing, damaged or of another version, where it was searched, and what to install.
/// `torch_version`: the version that the program was compiled with.
std::optional<Finding> check_program_start(const HostView& host, const std::string& program, const std::string& torch_version);

/// Whether each library that `program` itself names is found, without starting it. False if the program cannot be read.
bool finds_its_libraries(const HostView& host, const std::string& program);

}  // namespace npu_train
