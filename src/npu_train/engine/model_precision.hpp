/// The precision of a run: amp.fp32_modules and amp.low_precision_modules applied to a model's blocks, and the dtypes that result.
#pragma once

#include <string>
#include <vector>

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/nn/model.hpp"
#include "npu_train/precision/autocast.hpp"
#include "npu_train/precision/policy.hpp"

namespace npu_train {

/// Returns the device of a run; starts the simulated NPU if that is the device.
Device run_device(const RunConfig& config);

/// Returns the options of make_precision for a run. They contain only those amp.fp32_modules that are classes of layers. Paths need the
/// model's blocks, so the functions below handle them.
PrecisionOptions precision_options(const RunConfig& config);

/// Returns whether one of the two lists names a block or a layer of the model, not only classes of layers.
bool has_module_paths(const AmpOptions& amp);

/// Returns the two lists; Error(Usage) for an entry in both.
AmpModules amp_modules(const AmpOptions& options);

/// Makes the blocks that the lists keep in fp32 compute in fp32 inside a low-precision forward. Error(Usage) for entries that do not name a
/// block.
void keep_in_fp32(Model& model, const AmpModules& modules, const Device& device, const Precision& precision);

/// Returns the names of the `parameters` that stay fp32 when `precision` casts the others (`*-true`): those of fp32 blocks and `norms`,
/// except normalisation layers named directly in low_precision_modules. For other precisions, returns `norms`. Error(Usage) for an entry
/// that cannot be applied.
std::vector<std::string> fp32_parameters(const Model& model, const AmpModules& modules, const std::vector<std::string>& norms,
                                         const ParameterSet& parameters, const Precision& precision);

/// Returns the names of `parameters` that are read only through autocast: weights of linear layers and convolutions that belong to one
/// layer and are outside of fp32 blocks. With sharded parameters, ranks gather these in the low-precision dtype, which gives the same bits.
/// Returns none for a precision without autocast, if operators of these layers compute in fp32, or if their products are emulated.
std::vector<std::string> autocast_weights(const Model& model, const RunConfig& config, const Device& device, const ParameterSet& parameters,
                                          const Precision& precision);

/// Returns the precision of a run of `config`. If a model is named, it is made with initial weights and runs forward once on two empty
/// images, to record the dtypes of each layer. Data are not opened, so the model has its default number of classes and image size. Errors:
/// those of the run.
PrecisionPolicy precision_policy(const RunConfig& config, const Parts& parts = builtin_parts());

}  // namespace npu_train
