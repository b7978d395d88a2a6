/// The precision that results from a configuration: `train_app CONFIG --print-precision`.
#pragma once

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/precision/policy.hpp"

namespace npu_train {

/// The precision of a run of `config`, with its layers if a model is named: the model is made with fresh weights and runs forward once on
/// two empty images, and each layer's dtypes are recorded. Data are not opened, so the model has its own default of classes and image
/// size. Errors: those of the run itself.
PrecisionPolicy precision_policy(const RunConfig& config, const Parts& parts = builtin_parts());

}  // namespace npu_train
