/// amp.fp32_modules and amp.low_precision_modules on the blocks of a model.
#pragma once

#include <string>
#include <vector>

#include "npu_train/engine/run_config.hpp"
#include "npu_train/nn/model.hpp"
#include "npu_train/precision/fp32_region.hpp"

namespace npu_train {

/// Where a run computes; starts the simulated NPU when it is that.
Device run_device(const RunConfig& config);

/// What make_precision takes for a run. The modules are left to the functions below, which know the model's blocks.
PrecisionOptions precision_options(const RunConfig& config);

/// The two lists; Error(Usage) for an entry of both.
AmpModules amp_modules(const AmpOptions& options);

/// The blocks that the lists keep in fp32 take fp32 under a low precision and compute in it. Error(Usage) for entries that name no block.
void keep_in_fp32(Model& model, const AmpModules& modules, const Device& device, const Precision& precision);

/// Which of `parameters` stay fp32 where `precision` casts them (`*-true`; elsewhere it does not matter, and `norms` comes back): those of
/// fp32 blocks and `norms`, but for the normalisation layers that low_precision_modules names themselves. Error(Usage) where that cannot
/// work.
std::vector<std::string> fp32_parameters(const Model& model, const AmpModules& modules, const std::vector<std::string>& norms,
                                         const ParameterSet& parameters, const Precision& precision);

}  // namespace npu_train
