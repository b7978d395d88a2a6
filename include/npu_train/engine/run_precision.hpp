/// The precision that a configuration comes to: `train_app CONFIG --print-precision`.
#pragma once

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/precision/policy.hpp"

namespace npu_train {

/// What a run of `config` would compute in, with its layers where a model is named: the model is made with fresh weights and run forward
/// once, on two empty pictures, and each layer's dtypes are noted. Data are not opened, so the model has its own default of classes and
/// picture size. Errors as the run itself gives them.
PrecisionPolicy precision_policy(const RunConfig& config, const Parts& parts = builtin_parts());

}  // namespace npu_train
