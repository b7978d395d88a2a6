// One of the runs that a PrecisionValidator compares.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/engine/trainer.hpp"
#include "npu_train/tools/validate/precision_validator.hpp"

namespace npu_train::detail {

// Returns the distance from 1 to the next number of a dtype.
double epsilon_of(at::ScalarType dtype);
at::ScalarType coarser(at::ScalarType a, at::ScalarType b);

// Returns a shape as "8x3x224x224".
std::string shape_text(const std::vector<int64_t>& shape);

// Tensors by name, on the host, fp32.
using HostTensors = std::map<std::string, at::Tensor>;

struct SeenOutput {
  std::string layer, type, op;
  at::Tensor value;  // on the host, fp32
};

// Records the gradients of each step as the optimizer receives them: without the loss scale, before clipping.
class GradientTap : public StepObserver {
 public:
  explicit GradientTap(Trainer& trainer) : trainer_(trainer) {}
  void phase_begin(Phase phase, int64_t attempt, int micro_batch) override;
  HostTensors seen;
  const HostTensors* instead = nullptr;    // gradients that replace the run's own, which are recorded before
  at::ScalarType rounded_to = at::kFloat;  // dtype to which the gradients for the optimizer are rounded

 private:
  Trainer& trainer_;
};

struct TakenStep {
  double loss = 0;
  bool taken = false;
  int64_t skipped = 0;  // number of skipped steps before it, which overflowed because the loss scale was high
  double loss_scale = 1;
  HostTensors gradients;
};

class ValidationSide {
 public:
  ValidationSide(const RunConfig& config, const Parts& parts);
  // Uses a given task and data set instead of the configuration's model and data.
  ValidationSide(const RunConfig& config, const Parts& parts, std::shared_ptr<Task> task, std::shared_ptr<const Dataset> data);
  ValidationSide(const ValidationSide&) = delete;
  ValidationSide& operator=(const ValidationSide&) = delete;

  // Loads the weights of `state`, and its moving average if both `state` and this run have one.
  void take_weights(const RunState& state);
  // Multiplies each parameter by 1 + eps * u, with u uniform in [-1, 1].
  void shake(RunState state, double eps);

  // Returns the logits in evaluation mode, on the host, fp32.
  at::Tensor predict(const at::Tensor& input);
  // Like predict(), but returns the outputs of the layers of these classes, in order of their last calls.
  std::vector<SeenOutput> layers(const at::Tensor& input, const std::vector<std::string>& types);
  // Returns the outputs of the layers that `wanted` accepts by path and class.
  using Wanted = std::function<bool(const std::string& path, const std::string& type)>;
  std::vector<SeenOutput> layers(const at::Tensor& input, const Wanted& wanted);
  // Whether the device's flag reports that the last predict() overflowed; false if overflows result in inf.
  bool overflowed() const { return overflowed_; }

  // Takes one optimizer step. A step that the loss scale skips is repeated with the same random numbers. `gradients` replace the step's
  // own; the optimizer's input is rounded to `rounded_to`.
  TakenStep step(const Batch& batch, at::ScalarType rounded_to = at::kFloat, const HostTensors* gradients = nullptr);

  // Returns the coarsest dtype that the optimizer updates.
  at::ScalarType updated_dtype();
  // Copies parameters (fp32 masters if any) and buffers to the host.
  HostTensors weights();
  Trainer& trainer() { return trainer_; }
  const ValidatedSide& facts() const { return facts_; }
  at::ScalarType dtype() const { return dtype_; }

 private:
  void begin();
  at::Tensor in_layout(const at::Tensor& value) const;

  std::string cpu_low_precision_;

  Trainer trainer_;
  GradientTap tap_;
  ValidatedSide facts_;
  at::ScalarType dtype_ = at::kFloat;
  bool channels_last_ = false;
  bool overflowed_ = false;
};

// Selects layers by layer_names, or by layer_types if there are none. `options` must outlive the result.
ValidationSide::Wanted wanted_layers(const PrecisionValidatorOptions& options);

}  // namespace npu_train::detail
