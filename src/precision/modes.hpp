// The precisions beside 32-true.
#pragma once

#include <optional>

#include "npu_train/precision/emulation.hpp"
#include "npu_train/precision/precision.hpp"

namespace npu_train::detail {

// bf16-mixed and 16-mixed: fp32 parameters, autocast, and with `scale` a loss scale.
class MixedPrecision : public Precision {
 public:
  MixedPrecision(std::string name, const Device& device, at::ScalarType dtype, CpuLowPrecision cpu, std::optional<LossScale> scale)
      : name_(std::move(name)), device_(device), dtype_(dtype), cpu_(cpu), scale_(std::move(scale)) {}

  std::string name() const override { return name_; }
  at::ScalarType low_precision_dtype() const override { return dtype_; }
  void begin_step() override;
  std::unique_ptr<PrecisionScope> forward_scope() const override;
  at::Tensor scale_loss(const at::Tensor& loss) const override;
  StepGate unscale_and_check(double factor) override;
  void after_step(const StepGate& gate) override { note(gate); }
  void update(const StepGate& gate) override;
  bool may_skip() const override { return scale_.has_value(); }
  bool last_step_skipped() override;
  double scale() const override { return scale_ ? scale_->scale() : 1; }
  int64_t skip_streak() const override { return scale_ ? scale_->skip_streak() : 0; }
  bool at_floor() const override { return scale_ && scale_->at_floor(); }
  State state() const override;
  void load_state(const State& state) override;

 private:
  void note(const StepGate& gate);

  std::string name_;
  Device device_;
  at::ScalarType dtype_;
  CpuLowPrecision cpu_;
  std::optional<LossScale> scale_;
  at::Tensor found_inf_;       // of the last step
  std::optional<bool> found_;  // its value once the host has read it
};

// bf16-true and 16-true: parameters in `dtype`, with fp32 masters unless `masters` is false. Runs under autocast too: its casts cost
// nothing (the weights have the dtype already), and it joins them with fp32 normalisation parameters and regions.
class TruePrecision final : public MixedPrecision {
 public:
  TruePrecision(std::string name, const Device& device, at::ScalarType dtype, CpuLowPrecision cpu, std::optional<LossScale> scale,
                bool masters, std::vector<std::string> fp32_modules)
      : MixedPrecision(std::move(name), device, dtype, cpu, std::move(scale)),
        keeps_masters_(masters),
        fp32_modules_(std::move(fp32_modules)) {}

  ParameterSet prepare(const ParameterSet& model_parameters, const std::vector<std::string>& keep_fp32) override;
  Batch cast_input(const Batch& batch) const override;
  void collect_gradients() override;
  void after_step(const StepGate& gate) override;
  void masters_loaded() override;
  void parameters_loaded() override;

 private:
  bool keeps_masters_;
  std::vector<std::string> fp32_modules_;
  std::vector<at::Tensor> low_;      // what the model computes with
  std::vector<at::Tensor> masters_;  // what the optimizer updates; the same order
};

}  // namespace npu_train::detail
