/// What of a configured run will not run, or not run well, on an Ascend NPU: see analyze/analysis.hpp.
#pragma once

#include "npu_train/analyze/analysis.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"

namespace npu_train {

/// Takes two steps of the configuration's training on its device and in its precision (`auto`: the CPU), writes nothing, and looks up what
/// the second one dispatched, the optimizer's step included. Errors of the configuration, the data and the model go through.
Analysis analyze_run(const RunConfig& config, const AnalysisOptions& options = {}, const Parts& parts = builtin_parts());

}  // namespace npu_train
