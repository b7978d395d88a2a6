#include "npu_train/engine/progress.hpp"

#include <algorithm>
#include <cstdio>

#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train {
namespace {

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char buffer[512];
  const int n = std::snprintf(buffer, sizeof buffer, pattern, args...);
  return std::string(buffer, static_cast<size_t>(std::clamp(n, 0, static_cast<int>(sizeof buffer) - 1)));
}

std::string clock_text(double seconds) {
  const auto s = static_cast<long long>(seconds + 0.5);
  return s >= 3600 ? format("%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60) : format("%02lld:%02lld", s / 60, s % 60);
}

std::string metrics_text(const Scalars& scalars) {
  std::string out;
  for (const auto& [name, value] : scalars) out += format(name == "loss" ? "  %s %.4f" : "  %s %.2f", name.c_str(), value);
  return out;
}

}  // namespace

Progress::Progress(std::function<void(const std::string&)> write, bool bar, int64_t every_n_steps)
    : write_(std::move(write)), bar_(bar), every_(every_n_steps) {}

void Progress::on_epoch_start(TrainLoop& loop, int64_t) {
  in_epoch_ = loop.windows_done();
  seconds_ = data_wait_ = 0;
  samples_ = 0;
  steps_timed_ = 0;
  average_.reset();
}

std::string Progress::line(TrainLoop& loop, const StepReport& r) const {
  const auto total = loop.windows_per_epoch();
  auto out = format("epoch %lld", static_cast<long long>(r.epoch + 1));
  if (loop.options().max_epochs > 0) out += format("/%lld", static_cast<long long>(loop.options().max_epochs));
  out += format("  step %lld", static_cast<long long>(in_epoch_));
  if (total) out += format("/%lld", static_cast<long long>(*total));
  if (total)
    out +=
        "  eta " + clock_text(seconds_ / static_cast<double>(std::max<int64_t>(1, steps_timed_)) * static_cast<double>(*total - in_epoch_));
  const auto average = average_.value();
  for (const auto& [name, value] : r.metrics)
    out += format(name == "loss" ? "  %s %.4f (%.4f)" : "  %s %.2f (%.2f)", name.c_str(), value, scalar_or(average, name, value));
  out += format("  lr %.3g", r.lr);
  if (seconds_ > 0) out += format("  %.1f img/s  data %.0f%%", static_cast<double>(samples_) / seconds_, 100 * data_wait_ / seconds_);
  if (r.grad_norm > 0) out += format("  grad_norm %.3g", r.grad_norm);
  if (r.loss_scale != 1) out += format("  loss_scale %g  skipped %lld", r.loss_scale, static_cast<long long>(skipped_));
  const auto memory = backend_of(loop.parts().device).memory(loop.parts().device);
  out += "  mem " + human_bytes(static_cast<double>(memory.peak));
  return out;
}

void Progress::on_step_end(TrainLoop& loop, const StepReport& r) {
  ++in_epoch_;
  ++steps_timed_;
  seconds_ += r.seconds;
  data_wait_ += r.data_wait;
  samples_ += r.samples;
  if (!r.taken) ++skipped_;
  if (r.taken) average_.add(r.metrics, static_cast<double>(r.samples));
  if (!r.taken) {
    end_bar();
    write_(format("step %lld skipped: gradients overflowed; loss scale %g\n", static_cast<long long>(r.attempt), r.loss_scale));
  }
  const auto total = loop.windows_per_epoch();
  if (bar_) {
    const double now = loop.parts().clock->now();
    if (now - last_bar_ < 0.2 && !(total && in_epoch_ == *total)) return;
    last_bar_ = now;
    std::string gauge;
    if (total && *total > 0) {
      const auto full = static_cast<size_t>(20 * std::min(in_epoch_, *total) / *total);
      gauge = "[" + std::string(full, '#') + std::string(20 - full, '.') + "] ";
    }
    write_("\r\033[K" + gauge + line(loop, r));
    bar_open_ = true;
  } else if (in_epoch_ % every_ == 0 || (total && in_epoch_ == *total)) {
    write_(line(loop, r) + "\n");
  }
}

void Progress::end_bar() {
  if (bar_open_) write_("\n");
  bar_open_ = false;
}

void Progress::on_epoch_end(TrainLoop& loop, const EpochReport& r) {
  end_bar();
  auto out = format("epoch %lld done:", static_cast<long long>(r.epoch + 1)) + " train" + metrics_text(r.train);
  if (!r.val.empty()) out += "  | val" + metrics_text(r.val);
  out += format("  | %.1f img/s, %s", r.images_per_second, human_duration(r.seconds).c_str());
  if (r.skipped > 0) out += format(", %lld skipped", static_cast<long long>(r.skipped));
  write_(out + "\n");
}

void Progress::on_checkpoint(TrainLoop&, const std::string& path) {
  end_bar();
  write_("saved " + path + "\n");
}

}  // namespace npu_train
