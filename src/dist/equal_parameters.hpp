// The checks before training that all ranks have the same options and the same parameters.
#pragma once

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/dist/options.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

// `resolved` options by which ranks reduce, and the division. Before any call in which ranks with other options would wait for others.
// Error(Usage) names the rank and the option that differ.
void check_equal_options(ProcessGroup& group, const DistOptions& resolved, Sharding sharding);

// In the same order, and with the same content if `values`. Error(Peer) names the rank and the parameter that differ.
void check_equal_parameters(const ParameterSet& parameters, ProcessGroup& group, bool values);

}  // namespace npu_train::detail
