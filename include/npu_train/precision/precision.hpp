/// How a run computes: in which dtype the forward runs, who keeps fp32 weights, how gradients come back to fp32.
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

/// Section `grad_scaler`. The floor of 1 and the cap of 2^24 are the Trainer's; a GradScaler of your own has none.
struct GradScalerOptions {
  std::string enabled = "auto";  ///< auto: where the mode is fp16; true | false: an explicit contradiction is an error
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  double min_scale = 1;
  double max_scale = 16777216;
  bool dynamic = true;     ///< false: init_scale throughout the run
  int64_t hysteresis = 1;  ///< overflows until the scale falls; the count is reset when the scale grows; see loss_scale.hpp
  /// The pure part. init_scale is brought into [min_scale, max_scale] only by the user: outside it is Error(Usage).
  LossScaleOptions loss_scale() const;
  static const ConfigTable<GradScalerOptions>& config_table();
};

struct PrecisionOptions {
  std::string mode = "auto";
  GradScalerOptions grad_scaler{};
  std::vector<std::string> fp32_modules{};  ///< paths of modules that keep fp32 parameters and compute in fp32 (see fp32_region.hpp)
  std::string cpu_low_precision = "auto";   ///< auto | native | emulated: how a CPU computes in bf16 and fp16, see emulation.hpp
  std::vector<std::string> low_precision_modules{};  ///< exceptions from fp32_modules, and normalisation layers that `*-true` is to cast
  std::vector<std::string> fp32_ops{};               ///< operators that compute in fp32 in the forward, see fp32_ops.hpp
  static const ConfigTable<PrecisionOptions>& config_table();
};

/// Names that `precision:` takes, for configuration tables.
const std::vector<std::string>& precision_modes();

/// Lives as long as a forward computes in the mode's dtype.
class PrecisionScope {
 public:
  virtual ~PrecisionScope() = default;
};

/// The precision of one run, and its base: 32-true, which does nothing. The order of calls in a step:
///
///   begin_step();
///   { scope = forward_scope(); loss = forward(cast_input(batch)); }   per micro-batch
///   scale_loss(loss).backward(); collect_gradients();
///   gate = unscale_and_check(factor);   // ranks agree on gate.found_inf; clip
///   gate = optimizer_gate(gate); optimizer.step(gate); after_step(gate); update(gate);
///
/// After the first overflow in `16-*` only the scale has changed.
class Precision {
 public:
  virtual ~Precision() = default;

  /// As in the table above, "32-true" or "16-mixed"; O-names and auto are resolved.
  virtual std::string name() const { return "32-true"; }
  /// The dtype of the forward; fp32 here.
  virtual at::ScalarType low_precision_dtype() const { return at::kFloat; }

  /// Operators that the forward computes in fp32, with the requested names.
  virtual Fp32Ops fp32_ops() const { return {}; }

  /// To be called once, before the optimizer is made. Gives what the optimizer is to update, under the same names: the same set, or fp32
  /// masters of the parameters that were cast in place. Parameters named in `keep_fp32` (those of normalisation layers) or under one of
  /// fp32_modules are not cast, unless low_precision_modules makes an exception; frozen ones are cast and get no master. Error(Usage) when
  /// called twice or for parameters that are not fp32 where they are to be cast.
  virtual ParameterSet prepare(const ParameterSet& model_parameters, const std::vector<std::string>& keep_fp32 = {});

  /// After parameters of prepare() were frozen or thawed: what the optimizer is to update now, those that require a gradient. In `*-true`
  /// masters are kept, made of the low-precision values for those that had none, and dropped for those that are frozen.
  virtual ParameterSet refresh(const ParameterSet& model_parameters);

  /// After a Strategy has decided what the optimizer of this rank updates: of what prepare() or refresh() gave, the same, or slices. Their
  /// gradients are unscaled and checked from now on.
  void set_updated(ParameterSet updated) { updated_ = std::move(updated); }

  /// Before the first forward of a window: what overflowed earlier does not count.
  virtual void begin_step() {}

  /// nullptr where nothing is to be scoped.
  virtual std::unique_ptr<PrecisionScope> forward_scope() const { return nullptr; }
  /// `*-true`: floating tensors named "input..." in the parameters' dtype (targets keep theirs).
  virtual Batch cast_input(const Batch& batch) const { return batch; }
  virtual at::Tensor scale_loss(const at::Tensor& loss) const { return loss; }

  /// After the backward of each micro-batch: low-precision gradients are added into the masters' fp32 gradients and dropped.
  virtual void collect_gradients() {}

  /// Gradients times `factor` (the window's normalisation) and divided by the scale, with the finite check, in one fused pass; found_inf
  /// stays on the device. Here: no pass at all when `factor` is 1, and an empty gate.
  virtual StepGate unscale_and_check(double factor);

  /// After ranks have agreed on gate.found_inf: the gate for the optimizer and the moving average. Where the optimizers of the device take
  /// no found_inf (Capabilities::skips_on_device), it is read here, once, and is on the host from now on.
  virtual StepGate optimizer_gate(const StepGate& agreed) { return agreed; }

  /// After the optimizer: masters are rounded into the low-precision parameters.
  virtual void after_step(const StepGate& /*gate*/) {}
  /// The scale's state machine; at the end of every step attempted.
  virtual void update(const StepGate& /*gate*/) {}

  /// Whether a step can be skipped (`16-*` with the scaler on).
  virtual bool may_skip() const { return false; }
  /// Whether the last unscale_and_check() found an overflow, after ranks have agreed on its found_inf. Reads the device once per step;
  /// false where may_skip() is.
  virtual bool last_step_skipped() { return false; }

  /// After the masters were set (a checkpoint): parameters := round(masters). After the parameters were set (pretrained weights):
  /// masters := parameters. Nothing here.
  virtual void masters_loaded() {}
  virtual void parameters_loaded() {}

  /// The loss scale; 1 without a scaler.
  virtual double scale() const { return 1; }
  /// Skipped steps in a row.
  virtual int64_t skip_streak() const { return 0; }
  /// The scale cannot fall further.
  virtual bool at_floor() const { return false; }
  /// The scale moves at all: false where `grad_scaler.dynamic` is.
  virtual bool has_floor() const { return false; }

  /// The scaler's values; empty without one. A state of another mode is accepted too: values that it lacks keep their initial values.
  virtual State state() const { return {}; }
  virtual void load_state(const State& /*state*/) {}

 protected:
  ParameterSet updated_;  // what the optimizer updates
};

/// The Precision for `options` on `device`. Logs once if a CPU emulates the dtype, and warns if a CPU or GPU without units for it
/// computes natively (it will be slow). Error(Usage) for bf16 on an NPU that has none, for an unknown mode, for contradictions (the scaler
/// on in a mode that is not fp16, a module in both lists) and as check_fp32_ops(). precision_policy() of policy.hpp lists its decisions.
std::unique_ptr<Precision> make_precision(const PrecisionOptions& options, const Device& device);

}  // namespace npu_train
