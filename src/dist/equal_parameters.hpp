// Before training: all ranks have the same parameters.
#pragma once

#include <string>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

// In the same order, and with the same `compression`. Error(Peer) names the rank and the parameter that differ.
void check_equal_parameters(const ParameterSet& parameters, ProcessGroup& group, const std::string& compression);

}  // namespace npu_train::detail
