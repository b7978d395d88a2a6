#include "precision/scaler_state.hpp"

namespace npu_train::detail {

State to_state(const LossScaleState& s) {
  State out;
  out.values["scale"] = s.scale;
  out.values["growth_tracker"] = s.growth_tracker;
  out.values["skip_streak"] = s.skip_streak;
  out.values["overflows"] = s.overflows;
  return out;
}

LossScaleState loss_scale_state(const State& state, const std::string& part) {
  return {.scale = state.number("scale", part),
          .growth_tracker = state.integer("growth_tracker", part),
          .skip_streak = state.integer("skip_streak", part),
          .overflows = state.values.count("overflows") == 0 ? 0 : state.integer("overflows", part)};  // missing in older checkpoints
}

double inverse_scale(double scale) { return static_cast<double>(static_cast<float>(1.0 / scale)); }

at::Tensor times_scale(const at::Tensor& loss, double scale) {
  const bool low = loss.scalar_type() == at::kHalf || loss.scalar_type() == at::kBFloat16;
  return (low && loss.dim() == 0 ? loss.to(at::kFloat) : loss).mul(scale);
}

}  // namespace npu_train::detail
