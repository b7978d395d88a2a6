// All precisions except 32-true.
#pragma once

#include <optional>

#include "npu_train/device/backend.hpp"
#include "npu_train/precision/autocast.hpp"
#include "npu_train/precision/emulation.hpp"
#include "npu_train/precision/precision.hpp"

namespace npu_train::detail {

// Resolves `precision: auto` on a device with the capabilities `has`.
std::string auto_mode(const Device& device, const Capabilities& has);

// Arguments of the forward's Autocast.
struct AutocastOptions {
  Device device;
  at::ScalarType dtype;
  CpuLowPrecision cpu;
  Fp32Ops fp32_ops;
};

// bf16-mixed and 16-mixed: fp32 parameters and autocast, with a loss scale if `scale` is given.
class MixedPrecision : public Precision {
 public:
  MixedPrecision(std::string name, AutocastOptions autocast, std::optional<LossScale> scale)
      : name_(std::move(name)),
        autocast_(std::move(autocast)),
        scale_(std::move(scale)),
        computes_on_(autocast_.device.c10()),
        skips_on_device_(backend_of(autocast_.device).capabilities(autocast_.device).skips_on_device) {}

  std::string name() const override { return name_; }
  at::ScalarType low_precision_dtype() const override { return autocast_.dtype; }
  Fp32Ops fp32_ops() const override { return autocast_.fp32_ops; }
  void begin_step() override;
  std::unique_ptr<PrecisionScope> forward_scope() const override;
  at::Tensor scale_loss(const at::Tensor& loss) const override;
  StepDecision unscale_and_check(double factor) override;
  StepDecision optimizer_decision(const StepDecision& agreed) override;
  void after_step(const StepDecision& decision) override { note(decision); }
  void update(const StepDecision& decision) override;
  bool may_skip() const override { return scale_.has_value(); }
  bool last_step_skipped() override;
  double scale() const override { return scale_ ? scale_->scale() : 1; }
  int64_t skip_streak() const override { return scale_ ? scale_->skip_streak() : 0; }
  bool at_floor() const override { return scale_ && scale_->at_floor(); }
  bool has_floor() const override { return scale_ && scale_->options().dynamic; }
  State state() const override;
  void load_state(const State& state) override;

 private:
  void note(const StepDecision& decision);

  std::string name_;
  AutocastOptions autocast_;
  std::optional<LossScale> scale_;
  c10::Device computes_on_;  // device of the forward; the gradients may be on the host
  bool skips_on_device_;
  at::Tensor found_inf_;       // flag of the last step
  std::optional<bool> found_;  // value of found_inf_ after a host read
};

// bf16-true and 16-true: parameters in `dtype`, with fp32 masters if `masters` is true. The forward runs under autocast, too, which
// converts between these parameters and fp32 normalisation layers or regions. Casting the weights costs nothing, because they already have
// the dtype.
class TruePrecision final : public MixedPrecision {
 public:
  TruePrecision(std::string name, AutocastOptions autocast, std::optional<LossScale> scale, bool masters, AmpModules modules)
      : MixedPrecision(std::move(name), std::move(autocast), std::move(scale)), keeps_masters_(masters), modules_(std::move(modules)) {}

  ParameterSet prepare(const ParameterSet& model_parameters, const std::vector<std::string>& keep_fp32) override;
  ParameterSet refresh(const ParameterSet& model_parameters) override;
  Batch cast_input(const Batch& batch) const override;
  void collect_gradients() override;
  void after_step(const StepDecision& decision) override;
  void masters_loaded() override;
  void parameters_loaded() override;

 private:
  bool rounds() const;

  bool keeps_masters_;
  AmpModules modules_;
  std::vector<at::Tensor> low_;      // the tensors that the model computes with
  std::vector<at::Tensor> masters_;  // the tensors that the optimizer updates, in the same order
};

}  // namespace npu_train::detail
