// Checks before training that all ranks have the same options and the same parameters.
#pragma once

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/dist/options.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

// Compares the `resolved` options and the sharding. Called before any call in which ranks with different options would wait for each other.
// Error(Usage) names the rank and the option that differ.
void check_equal_options(ProcessGroup& group, const DistOptions& resolved, Sharding sharding);

// Compares the parameters in their order and, with `values`, their content. Error(Peer) names the rank and the parameter that differ.
void check_equal_parameters(const ParameterSet& parameters, ProcessGroup& group, bool values);

}  // namespace npu_train::detail
