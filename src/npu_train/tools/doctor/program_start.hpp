/// Finds the reason why a program that links libtorch does not start. The program cannot report it, because the loader ends it first.
#pragma once

#include <optional>
#include <string>

#include "npu_train/tools/doctor/checks.hpp"

namespace npu_train {

/// Starts `program` (a path) with --parse-only, which ends it at once. Returns nullopt if it starts. Otherwise returns a failing finding
/// "libtorch" of area "system": the library that is missing, damaged or of another version, where it was searched, and the software to
/// install. `torch_version`: the version with which the program was compiled.
std::optional<Finding> check_program_start(const HostView& host, const std::string& program, const std::string& torch_version);

/// Whether all libraries that `program` itself names are found; does not start it. False if the program cannot be read.
bool finds_its_libraries(const HostView& host, const std::string& program);

}  // namespace npu_train
