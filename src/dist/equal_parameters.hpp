// Before training: all ranks have the same parameters.
#pragma once

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/dist/options.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

// In the same order, and compressed in the same way. Error(Peer) names the rank and the parameter that differ.
void check_equal_parameters(const ParameterSet& parameters, ProcessGroup& group, const DistOptions& options);

}  // namespace npu_train::detail
