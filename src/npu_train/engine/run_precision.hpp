/// The precision that results from a configuration: `train_app CONFIG --print-precision`.
#pragma once

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/precision/policy.hpp"

namespace npu_train {

/// Returns the precision of a run of `config`. If a model is named, it is made with initial weights and runs forward once on two empty
/// images, to record the dtypes of each layer. Data are not opened, so the model has its default number of classes and image size. Errors:
/// those of the run.
PrecisionPolicy precision_policy(const RunConfig& config, const Parts& parts = builtin_parts());

}  // namespace npu_train
