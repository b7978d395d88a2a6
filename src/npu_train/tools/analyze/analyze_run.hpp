/// Finds the parts of a configured run that will not run, or not run well, on an Ascend NPU: see analyze/analysis.hpp and
/// analyze/try_device.hpp.
#pragma once

#include <string>

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/tools/analyze/analysis.hpp"
#include "npu_train/tools/analyze/try_device.hpp"

namespace npu_train {

/// Takes two steps of the configuration's training without writing files, and looks up the operators of the second one, including
/// reduction, unscaling, clipping and the optimizer's step. Runs on the CPU, whatever `device` is, in the configuration's precision; `auto`
/// is the precision that the chip would use. bf16 and fp16 are emulated, so that the result does not depend on the CPU. Errors of the
/// configuration, the data and the model are rethrown.
Analysis analyze_run(const RunConfig& config, const AnalysisOptions& options = {}, const Parts& parts = builtin_parts());

/// Calls try_device() for the configuration's model and the first batch of its data. For "sim_npu", starts the simulated NPU with the
/// configuration's options.
TrialReport try_run(const RunConfig& config, const std::string& device, const TrialOptions& options = {},
                    const Parts& parts = builtin_parts());

}  // namespace npu_train
