/// Common parts of the proofs: short runs that write nothing, and their states for comparison.
#pragma once

#include <string>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/trainer.hpp"

namespace npu_train::detail {

/// The configuration without files, validation and early ends.
RunConfig without_side_effects(RunConfig config);

/// The same without initial weights from a file: for tools that need only the shapes of a model.
RunConfig without_files(RunConfig config);

/// Parts whose data sets open no image: for tools that need only the shapes of a batch. Data whose shapes are known only after opening are
/// unchanged.
Parts shapes_only(const Parts& parts, const RunConfig& config);

/// The model of a configuration with the number of classes and the image size that its data give it, where it leaves them open. The data
/// are opened only if their form is not known without (shapes_only). Errors: those of opening the data.
PartConfig model_for_data(const RunConfig& config, const Parts& parts);

/// The run of a configuration ends before the steps of a proof are done.
class TooFewSteps : public Error {
 public:
  TooFewSteps(const char* where, int64_t taken_steps, int64_t needed_steps);
  int64_t taken, needed;
};

/// A trainer that has taken `steps` steps. TooFewSteps, an Error(Usage) with the name `where`, if the run ends before.
Trainer trained_until(const RunConfig& config, const Parts& parts, int64_t steps, const char* where);

/// Owns its tensors, since the live state continues to change.
RunState snapshot(Trainer& trainer);

/// Parts of `a` that are not bit-equal in `b`; wall times are ignored.
std::vector<std::string> differing_parts(const RunState& a, const RunState& b);

}  // namespace npu_train::detail
