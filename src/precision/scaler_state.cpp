#include "precision/scaler_state.hpp"

#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>

namespace npu_train::detail {

State to_state(const LossScaleState& s) {
  State out;
  out.values["scale"] = s.scale;
  out.values["growth_tracker"] = s.growth_tracker;
  out.values["skip_streak"] = s.skip_streak;
  return out;
}

LossScaleState loss_scale_state(const State& state, const std::string& part) {
  return {.scale = state.number("scale", part),
          .growth_tracker = state.integer("growth_tracker", part),
          .skip_streak = state.integer("skip_streak", part)};
}

double inverse_scale(double scale) { return static_cast<double>(static_cast<float>(1.0 / scale)); }

at::Tensor times_scale(const at::Tensor& loss, double scale) {
  // a 0-dim fp32 tensor of the host: goes into kernels of any device as a number, without a copy to it
  return loss.mul(at::scalar_tensor(scale, at::TensorOptions().dtype(loss.scalar_type() == at::kDouble ? at::kDouble : at::kFloat)));
}

}  // namespace npu_train::detail
