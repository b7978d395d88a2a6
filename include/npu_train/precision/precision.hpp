/// The precision of a run: the dtype of the forward, the owner of the fp32 weights, and the conversion of gradients to fp32.
///
///   mode        parameters   forward    loss scale   notes
///   32-true     fp32         fp32       -            the base class: does nothing
///   bf16-mixed  fp32         autocast   -
///   16-mixed    fp32         autocast   dynamic      overflowing steps are skipped
///   bf16-true   bf16         bf16       -            fp32 masters in the optimizer; normalisation layers keep fp32 parameters
///   16-true     fp16         fp16       dynamic      the same
///   O0, O1, O2  32-true, 16-mixed, 16-true
///   O3          fp16         fp16       dynamic      16-true without masters: half the memory; updates below 2^-11 of a weight are lost
///   auto        bf16-mixed where the device multiplies bf16; else 32-true on a CPU, 16-mixed on another device
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/skippable_step.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/core/config_table.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/precision/fp32_ops.hpp"
#include "npu_train/precision/loss_scale.hpp"

namespace npu_train {

/// Section `grad_scaler`. The floor of 1 and the cap of 2^24 are defaults of the Trainer; a GradScaler has no limits by default.
struct GradScalerOptions {
  std::string enabled = "auto";  ///< auto: on if the mode is fp16; Error(Usage) for an explicit value that contradicts the mode
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  double min_scale = 1;
  double max_scale = 16777216;
  bool dynamic = true;     ///< false: the scale is init_scale throughout the run
  int64_t hysteresis = 1;  ///< number of overflows before the scale falls; reset when the scale grows; see loss_scale.hpp
  /// Returns the options of the state machine. Does not clamp init_scale: outside [min_scale, max_scale] it is an Error(Usage).
  LossScaleOptions loss_scale() const;
  static const ConfigTable<GradScalerOptions>& config_table();
};

struct PrecisionOptions {
  std::string mode = "auto";
  GradScalerOptions grad_scaler{};
  std::vector<std::string> fp32_modules{};           ///< paths of modules that keep fp32 parameters and compute in fp32 (autocast.hpp), and
                                                     ///< classes of layers (fp32_ops.hpp)
  std::string cpu_low_precision = "auto";            ///< auto | native | emulated: how a CPU computes in bf16 and fp16, see emulation.hpp
  std::vector<std::string> low_precision_modules{};  ///< exceptions from fp32_modules, and normalisation layers that `*-true` casts
  std::vector<std::string> fp32_ops{};               ///< operators that compute in fp32 in the forward, see fp32_ops.hpp
  static const ConfigTable<PrecisionOptions>& config_table();
};

/// Returns the values of the key `precision`, for configuration tables.
const std::vector<std::string>& precision_modes();

/// Scope in which a forward computes in the mode's dtype.
class PrecisionScope {
 public:
  virtual ~PrecisionScope() = default;
};

/// The precision of one run. The base class is 32-true, whose functions have no effect. Call the functions of a step in this order:
///
///   begin_step();
///   { scope = forward_scope(); loss = forward(cast_input(batch)); }   per micro-batch
///   scale_loss(loss).backward(); collect_gradients();
///   decision = unscale_and_check(factor);   // ranks agree on decision.found_inf; clip
///   decision = optimizer_decision(decision); optimizer.step(decision); after_step(decision); update(decision);
///
/// After an overflow in `16-*`, only the scale has changed.
class Precision {
 public:
  virtual ~Precision() = default;

  /// Returns the resolved mode of the table above, such as "32-true" or "16-mixed"; never auto, and no O-name except O3.
  virtual std::string name() const { return "32-true"; }
  /// Dtype of the forward; fp32 in the base class.
  virtual at::ScalarType low_precision_dtype() const { return at::kFloat; }

  /// Returns the operators that the forward computes in fp32, under the requested names.
  virtual Fp32Ops fp32_ops() const { return {}; }

  /// Call once, before the optimizer is created. Returns the set that the optimizer updates, under the same names: the model's set, or fp32
  /// masters of the parameters that were cast in place. Parameters named in `keep_fp32` (those of normalisation layers) or in fp32_modules
  /// are not cast, unless low_precision_modules makes an exception. Frozen parameters are cast without a master. Error(Usage) on a second
  /// call, and if a parameter that is to be cast is not fp32.
  virtual ParameterSet prepare(const ParameterSet& model_parameters, const std::vector<std::string>& keep_fp32 = {});

  /// Call it after parameters of prepare() were frozen or unfrozen. Returns the parameters that require a gradient, for the optimizer.
  /// `*-true` keeps existing masters, creates missing ones from the low-precision values, and drops those of frozen parameters.
  virtual ParameterSet refresh(const ParameterSet& model_parameters);

  /// Sets the parameters, or slices of them, that this rank's optimizer updates: a Strategy chooses them from those of prepare() or
  /// refresh(). From then on, their gradients are unscaled and checked.
  void set_updated(ParameterSet updated) { updated_ = std::move(updated); }

  /// Clears earlier overflow flags. Call it before the first forward of a window.
  virtual void begin_step() {}

  /// Returns the scope of a forward; nullptr if it needs none.
  virtual std::unique_ptr<PrecisionScope> forward_scope() const { return nullptr; }
  /// Returns the batch for the forward. `*-true` casts floating-point tensors named "input..." to the parameters' dtype; other tensors,
  /// such as targets, stay.
  virtual Batch cast_input(const Batch& batch) const { return batch; }
  virtual at::Tensor scale_loss(const at::Tensor& loss) const { return loss; }

  /// Adds low-precision gradients to the masters' fp32 gradients, and drops the low-precision ones. Call it after each micro-batch's
  /// backward.
  virtual void collect_gradients() {}

  /// Multiplies the gradients by `factor` (the window's normalisation), divides them by the scale and checks them, in one fused pass.
  /// found_inf stays on the device. In the base class: no check, no pass if `factor` is 1, and an empty decision.
  virtual StepDecision unscale_and_check(double factor);

  /// Returns the decision for the optimizer and the moving average. Call it after ranks have agreed on decision.found_inf. If the device's
  /// optimizers do not accept found_inf (Capabilities::skips_on_device), it is read here, once, and is then on the host.
  virtual StepDecision optimizer_decision(const StepDecision& agreed) { return agreed; }

  /// Rounds the masters into the low-precision parameters. Call it after the optimizer.
  virtual void after_step(const StepDecision& /*decision*/) {}
  /// Updates the loss scale. Call it at the end of every attempted step.
  virtual void update(const StepDecision& /*decision*/) {}

  /// Returns whether a step can be skipped (`16-*` with the scaler on).
  virtual bool may_skip() const { return false; }
  /// Returns whether the last step had an overflow, including those of other ranks. Reads the device once per step; false unless
  /// may_skip().
  virtual bool last_step_skipped() { return false; }

  /// masters_loaded() rounds the masters into the parameters: call it after the masters were set, for example from a checkpoint.
  /// parameters_loaded() copies the parameters into the masters: call it after the parameters were set, for example to pretrained weights.
  /// No effect in the base class.
  virtual void masters_loaded() {}
  virtual void parameters_loaded() {}

  /// Loss scale; 1 without a scaler.
  virtual double scale() const { return 1; }
  /// Number of consecutive skipped steps.
  virtual int64_t skip_streak() const { return 0; }
  /// Returns whether the scale cannot fall further.
  virtual bool at_floor() const { return false; }
  /// Returns whether the scale is dynamic (`grad_scaler.dynamic`).
  virtual bool has_floor() const { return false; }

  /// State of the scaler; empty without one. An empty state from another mode is accepted; the scale then keeps its initial values.
  virtual State state() const { return {}; }
  virtual void load_state(const State& /*state*/) {}

 protected:
  ParameterSet updated_;  // parameters that the optimizer updates
};

/// Creates the Precision for `options` on `device`. Logs once if a CPU emulates the dtype, and warns if a CPU or GPU computes natively
/// without fast kernels for it. Error(Usage) for bf16 on an NPU that does not support it, for an unknown mode, for contradictions
/// (a scaler in a mode other than fp16, a module in both lists), and as in check_fp32_ops(). precision_policy() in policy.hpp lists the
/// decisions.
std::unique_ptr<Precision> make_precision(const PrecisionOptions& options, const Device& device);

}  // namespace npu_train
