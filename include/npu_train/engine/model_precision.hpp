/// amp.fp32_modules and amp.low_precision_modules on the blocks of a model.
#pragma once

#include <string>
#include <vector>

#include "npu_train/engine/run_config.hpp"
#include "npu_train/nn/model.hpp"
#include "npu_train/precision/fp32_region.hpp"

namespace npu_train {

/// The device of a run; starts the simulated NPU if it is that device.
Device run_device(const RunConfig& config);

/// The options of make_precision for a run. The functions below handle the modules, since they know the model's blocks.
PrecisionOptions precision_options(const RunConfig& config);

/// The two lists; Error(Usage) for an entry in both.
AmpModules amp_modules(const AmpOptions& options);

/// Makes the blocks that the lists keep in fp32 accept fp32 and compute in it under a low precision. Error(Usage) for entries that name no
/// block.
void keep_in_fp32(Model& model, const AmpModules& modules, const Device& device, const Precision& precision);

/// Those of `parameters` that stay in fp32 if `precision` casts them (`*-true`; otherwise `norms` is returned): the parameters of fp32
/// blocks and `norms`, except the normalisation layers that low_precision_modules names directly. Error(Usage) for an entry that cannot be
/// applied.
std::vector<std::string> fp32_parameters(const Model& model, const AmpModules& modules, const std::vector<std::string>& norms,
                                         const ParameterSet& parameters, const Precision& precision);

/// Those of `parameters` that only autocast reads: weights of linear layers and convolutions of the model, outside of fp32 blocks,
/// which belong to one layer. Empty in a precision without autocast, where the operators of these layers compute in fp32, and where their
/// products are emulated. Where parameters are in shards ranks bring these in the dtype of the precision, with the same bits.
std::vector<std::string> autocast_weights(const Model& model, const RunConfig& config, const Device& device, const ParameterSet& parameters,
                                          const Precision& precision);

}  // namespace npu_train
