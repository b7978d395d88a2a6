// The table of the dynamic loss scale. It applies to the pure state machine, to each way of finding an overflow, and to ranks that agree.
#pragma once

#include "testing.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <torch/optim/sgd.h>
#include <algorithm>

#include <string>
#include <vector>

#include "npu_train/device/device.hpp"
#include "npu_train/precision/grad_scaler.hpp"
#include "npu_train/precision/loss_scale.hpp"
#include "npu_train/precision/precision.hpp"

namespace npu_train::testing {

/// An attempted step, and the state after it.
struct ScaleRow {
  bool overflow;
  double scale;
  int64_t tracker;
  int64_t streak;
};

struct ScaleCase {
  const char* name;
  LossScaleOptions options;
  std::vector<ScaleRow> rows;
};

inline const std::vector<ScaleCase>& scale_table() {
  static const std::vector<ScaleCase> table = {
      {"growth exactly after the interval",
       {.init_scale = 8, .growth_interval = 3},
       {{false, 8, 1, 0}, {false, 8, 2, 0}, {false, 16, 0, 0}, {false, 16, 1, 0}, {false, 16, 2, 0}, {false, 32, 0, 0}}},
      {"interval of one", {.init_scale = 8, .growth_interval = 1}, {{false, 16, 0, 0}, {false, 32, 0, 0}}},
      {"backoff resets the tracker",
       {.init_scale = 8, .growth_interval = 3},
       {{false, 8, 1, 0}, {false, 8, 2, 0}, {true, 4, 0, 1}, {false, 4, 1, 0}, {false, 4, 2, 0}, {false, 8, 0, 0}}},
      {"overflow every step, no floor",
       {.init_scale = 8, .growth_interval = 2},
       {{true, 4, 0, 1}, {true, 2, 0, 2}, {true, 1, 0, 3}, {true, 0.5, 0, 4}}},
      {"overflow every step, floor",
       {.init_scale = 4, .growth_interval = 2, .min_scale = 1},
       {{true, 2, 0, 1}, {true, 1, 0, 2}, {true, 1, 0, 3}, {true, 1, 0, 4}}},
      {"floor that is no power", {.init_scale = 4, .min_scale = 3}, {{true, 3, 0, 1}, {true, 3, 0, 2}}},
      {"cap",
       {.init_scale = 8, .growth_interval = 1, .max_scale = 24},
       {{false, 16, 0, 0}, {false, 24, 0, 0}, {false, 24, 0, 0}, {true, 12, 0, 1}}},
      {"streaks begin again after a clean step", {.init_scale = 8}, {{true, 4, 0, 1}, {true, 2, 0, 2}, {false, 2, 1, 0}, {true, 1, 0, 1}}},
      {"other factors",
       {.init_scale = 100, .growth_factor = 1.5, .backoff_factor = 0.25, .growth_interval = 2},
       {{false, 100, 1, 0}, {false, 150, 0, 0}, {true, 37.5, 0, 1}}},
      {"static",
       {.init_scale = 128, .growth_interval = 1, .dynamic = false},
       {{false, 128, 0, 0}, {true, 128, 0, 1}, {true, 128, 0, 2}, {false, 128, 0, 0}}},
      {"hysteresis: the second overflow halves, and each one after it",
       {.init_scale = 8, .growth_interval = 9, .hysteresis = 2},
       {{true, 8, 0, 1}, {true, 4, 0, 2}, {true, 2, 0, 3}}},
      {"hysteresis: clean steps between overflows give none back",
       {.init_scale = 8, .growth_interval = 3, .hysteresis = 2},
       {{true, 8, 0, 1}, {false, 8, 1, 0}, {false, 8, 2, 0}, {true, 4, 0, 1}, {false, 4, 1, 0}, {true, 2, 0, 1}}},
      {"hysteresis: growth gives it back",
       {.init_scale = 8, .growth_interval = 2, .hysteresis = 2},
       {{true, 8, 0, 1}, {false, 8, 1, 0}, {false, 16, 0, 0}, {true, 16, 0, 1}, {true, 8, 0, 2}, {true, 4, 0, 3}}},
      {"hysteresis: growth that the cap forbids gives it back too",
       {.init_scale = 8, .growth_interval = 1, .max_scale = 8, .hysteresis = 2},
       {{true, 8, 0, 1}, {false, 8, 0, 0}, {true, 8, 0, 1}, {true, 4, 0, 2}}},
  };
  return table;
}

/// Runs the table: `make(options)` returns an object with attempt(bool overflow) -> taken, scale(), tracker() and streak().
template <class Make>
void check_scale_table(Make make) {
  for (const auto& c : scale_table()) {
    CAPTURE(std::string(c.name));
    auto subject = make(c.options);
    CHECK(subject.scale() == c.options.init_scale);
    for (size_t i = 0; i < c.rows.size(); ++i) {
      CAPTURE(i);
      const auto& row = c.rows[i];
      CHECK(subject.attempt(row.overflow) == !row.overflow);
      CHECK(subject.scale() == row.scale);
      CHECK(subject.tracker() == row.tracker);
      CHECK(subject.streak() == row.streak);
    }
  }
}

/// Computes in fp16 on a device of either kind. If overflow gives inf, the gradient is not finite; if overflow saturates, it is.
inline at::Tensor fp16_loss(const at::Tensor& p, bool overflow) {
  const bool saturates = !p.is_cpu();
  if (!overflow) return (p.to(at::kHalf) * 2).to(at::kFloat).sum();
  const at::Tensor h = p.to(at::kHalf) * 60000;  // 2 * 60000 exceeds fp16
  return saturates ? h.to(at::kFloat).sum() : (h * h).to(at::kFloat).sum();
}

/// GradScaler with torch's SGD. `agree` simulates the agreement of the ranks.
class ScalerUnderTest {
 public:
  ScalerUnderTest(const LossScaleOptions& options, const Device& device, Agree agree = {}, bool another_overflows = false)
      : p_(at::full({3}, 2.0).to(device.c10()).set_requires_grad(true)),
        optimizer_({p_}, 1e-9),
        scaler_(options, true, std::move(agree)),
        another_overflows_(another_overflows) {}

  bool attempt(bool overflow) {
    optimizer_.zero_grad();
    scaler_.scale(fp16_loss(p_, overflow && !another_overflows_)).backward();
    const bool taken = scaler_.step(optimizer_);
    scaler_.update();
    return taken;
  }
  double scale() const { return scaler_.get_scale(); }
  int64_t tracker() const { return scaler_.loss_scale().growth_tracker(); }
  int64_t streak() const { return scaler_.loss_scale().skip_streak(); }

 private:
  at::Tensor p_;
  torch::optim::SGD optimizer_;
  GradScaler scaler_;
  bool another_overflows_;  // another rank has an overflow
};

/// 16-mixed, used as the trainer's step uses it.
class PrecisionUnderTest {
 public:
  PrecisionUnderTest(const LossScaleOptions& o, const Device& device)
      : p_(at::full({3}, 2.0).to(device.c10()).set_requires_grad(true)), precision_(make_precision(options(o), device)) {
    ParameterSet set;
    set.add({.name = "p", .value = p_});
    precision_->prepare(set);
  }

  bool attempt(bool overflow) {
    p_.mutable_grad().reset();
    precision_->begin_step();
    precision_->scale_loss(fp16_loss(p_, overflow)).backward();
    const auto decision = precision_->unscale_and_check(1);
    precision_->after_step(decision);
    const bool taken = !precision_->last_step_skipped();
    precision_->update(decision);
    return taken;
  }
  double scale() const { return precision_->scale(); }
  int64_t tracker() const { return precision_->state().integer("growth_tracker", "test"); }
  int64_t streak() const { return precision_->skip_streak(); }

 private:
  static PrecisionOptions options(const LossScaleOptions& o) {
    PrecisionOptions out;
    out.mode = "16-mixed";
    auto& s = out.grad_scaler;
    s.init_scale = o.init_scale, s.growth_factor = o.growth_factor, s.backoff_factor = o.backoff_factor;
    s.growth_interval = o.growth_interval, s.min_scale = o.min_scale,
    s.max_scale = std::min(o.max_scale, 1e38);  // a configuration cannot contain infinity
    s.dynamic = o.dynamic, s.hysteresis = o.hysteresis;
    return out;
  }

  at::Tensor p_;
  std::unique_ptr<Precision> precision_;
};

}  // namespace npu_train::testing
