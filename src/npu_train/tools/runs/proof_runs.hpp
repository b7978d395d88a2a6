/// Common parts of the proofs: short runs without output files, and their states for comparison.
#pragma once

#include <string>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/trainer.hpp"

namespace npu_train::detail {

/// Returns the configuration without output files, validation and anything that ends a run early. Weight averages of kinds other than ema
/// are never updated.
RunConfig without_side_effects(RunConfig config);

/// Like without_side_effects(), but also without initial weights from a file, for tools that need only the shapes of a model.
RunConfig without_files(RunConfig config);

/// Returns the configuration without the limits of the simulated card, so that steps that are only recorded cannot exceed them.
RunConfig without_limits(RunConfig config);

/// Returns parts whose data sets open no image, for tools that need only the shapes of a batch. Data sets whose shapes are known only after
/// opening them are not changed.
Parts shapes_only(const Parts& parts, const RunConfig& config);

/// Returns the model of a configuration, with the number of classes and the image size of its data if the configuration does not give them.
/// The data are opened only if their shapes are not known otherwise (shapes_only). Errors are those of opening the data.
PartConfig model_for_data(const RunConfig& config, const Parts& parts);

/// The error of a run that ended before it had taken the steps that a proof needs.
class TooFewSteps : public Error {
 public:
  TooFewSteps(const char* where, int64_t taken_steps, int64_t needed_steps);
  int64_t taken, needed;
};

/// Returns a trainer that has taken `steps` steps. Throws TooFewSteps, an Error(Usage) with the name `where`, if the run ends earlier.
Trainer trained_until(const RunConfig& config, const Parts& parts, int64_t steps, const char* where);

/// Returns a copy of the state, since the live one continues to change.
RunState snapshot(Trainer& trainer);

/// Returns the parts of `a` that are not bit-equal in `b`. Wall times are ignored.
std::vector<std::string> differing_parts(const RunState& a, const RunState& b);

}  // namespace npu_train::detail
