#include "npu_train/train/callbacks/progress.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "npu_train/core/message_text.hpp"
#include "npu_train/core/progress_line.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train {
namespace {

std::string rate_text(double samples_per_second, double weight_per_second, const std::string& unit) {
  return unit.empty() ? printed("%.1f samples/s", samples_per_second) : printed("%.0f %s/s", weight_per_second, unit.c_str());
}

std::string metrics_text(const Scalars& scalars) {
  std::string out;
  for (const auto& [name, value] : scalars) out += printed(name == "loss" ? "  %s %.4f" : "  %s %.2f", name.c_str(), value);
  return out;
}

}  // namespace

Progress::Progress(std::function<void(const std::string&)> write, bool bar, int64_t every_n_steps, std::function<size_t()> columns)
    : write_(std::move(write)),
      bar_(bar),
      every_(every_n_steps),
      line_(std::make_unique<detail::ProgressLine>(write_, std::move(columns))) {}

Progress::~Progress() = default;

size_t Progress::width() const { return bar_ ? line_->width() : 0; }

void Progress::on_fit_start(TrainLoop& loop) {
  started_ = loop.parts().clock->now();
  windows_ = 0;
}

void Progress::on_epoch_start(TrainLoop& loop, int64_t) {
  if (started_ < 0) on_fit_start(loop);
  in_epoch_ = loop.windows_done();
  seconds_ = data_wait_ = 0;
  samples_ = 0;
  weight_ = 0;
  steps_timed_ = 0;
  average_.reset();
}

// Estimates from the mean time of a window so far, including validations and checkpoints between windows.
std::optional<double> Progress::run_eta(TrainLoop& loop, const StepReport& r) const {
  const auto& o = loop.options();
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const double elapsed = loop.parts().clock->now() - started_;
  double windows = kNever;
  if (const auto total = loop.windows_per_epoch(); total && o.max_epochs >= 0)
    windows = static_cast<double>(*total - in_epoch_ + std::max<int64_t>(o.max_epochs - r.epoch - 1, 0) * *total);
  if (o.max_steps >= 0) windows = std::min(windows, static_cast<double>(o.max_steps - r.global_step));
  double out = std::max(windows, 0.0) * elapsed / static_cast<double>(std::max<int64_t>(windows_, 1));
  if (o.max_time >= 0) out = std::min(out, std::max(o.max_time - elapsed, 0.0));
  return std::isfinite(out) ? std::optional(out) : std::nullopt;
}

// Returns the averages of the epoch so far.
Scalars Progress::averages(const Task& task) const {
  auto out = average_.value();
  if (out.empty()) return out;
  for (const auto& further : task.metrics_of_loss(out.front().second))
    for (auto& [name, value] : out)
      if (name == further.first) value = further.second;
  return out;
}

std::vector<detail::LinePart> Progress::parts(TrainLoop& loop, const StepReport& r) const {
  std::vector<detail::LinePart> out;
  const auto total = loop.windows_per_epoch();
  auto epoch = printed("epoch %lld", static_cast<long long>(r.epoch + 1));
  if (loop.options().max_epochs > 0) epoch += printed("/%lld", static_cast<long long>(loop.options().max_epochs));
  out.push_back({0, epoch});
  auto step = printed("step %lld", static_cast<long long>(in_epoch_));
  if (total) step += printed("/%lld", static_cast<long long>(*total));
  out.push_back({0, step});
  const auto left = run_eta(loop, r);
  std::string of_epoch;
  if (total)
    of_epoch =
        detail::clock_text(seconds_ / static_cast<double>(std::max<int64_t>(1, steps_timed_)) * static_cast<double>(*total - in_epoch_));
  if (left)
    out.push_back({1, "eta " + detail::clock_text(*left) + (total ? " (epoch " + of_epoch + ")" : ""), "eta " + detail::clock_text(*left)});
  else if (total)
    out.push_back({1, "epoch eta " + of_epoch});
  const auto average = averages(*loop.parts().task);
  for (const auto& [name, value] : r.measured()) {
    const bool loss = name == "loss";
    const auto now = printed(loss ? "%s %.4f" : "%s %.2f", name.c_str(), value);
    out.push_back({loss ? 1 : 3, now + printed(loss ? " (%.4f)" : " (%.2f)", scalar_or(average, name, value)), now});
  }
  out.push_back({5, printed("lr %.3g", r.lr)});
  if (seconds_ > 0) {
    out.push_back({3, rate_text(static_cast<double>(samples_) / seconds_, weight_ / seconds_, loop.parts().task->weight_unit())});
    out.push_back({6, printed("data %.0f%%", 100 * data_wait_ / seconds_)});
  }
  if (r.grad_norm > 0) out.push_back({7, printed("grad_norm %.3g", r.grad_norm)});
  if (r.loss_scale != 1) {
    out.push_back({6, printed("loss_scale %g", r.loss_scale)});
    out.push_back({4, printed("skipped %lld", static_cast<long long>(skipped_))});
  }
  const auto memory = backend_of(loop.parts().device).memory(loop.parts().device);
  out.push_back({7, "mem " + human_bytes(static_cast<double>(memory.peak))});
  return out;
}

void Progress::on_step_end(TrainLoop& loop, const StepReport& r) {
  ++windows_;
  ++in_epoch_;
  ++steps_timed_;
  seconds_ += r.seconds;
  data_wait_ += r.data_wait;
  samples_ += r.samples;
  weight_ += r.weight;
  if (!r.taken) ++skipped_;
  if (r.taken) average_.add(r.metrics, r.counts);
  if (!r.taken) {
    line_->clear();
    write_(r.empty ? printed("step %lld skipped: no target in it counts\n", static_cast<long long>(r.attempt))
                   : printed("step %lld skipped: gradients overflowed; loss scale %g\n", static_cast<long long>(r.attempt), r.loss_scale));
  }
  const auto total = loop.windows_per_epoch();
  const bool last = total && in_epoch_ == *total;
  if (bar_) {
    if (line_->due(loop.parts().clock->now(), last)) line_->show(parts(loop, r), in_epoch_, total);
  } else if (in_epoch_ % every_ == 0 || last) {
    write_(detail::fitted(parts(loop, r), 0) + "\n");
  }
}

void Progress::on_validation_batch(TrainLoop& loop, int64_t done, std::optional<int64_t> total) {
  if (!bar_) return;
  const double now = loop.parts().clock->now();
  if (done == 1) first_validated_ = now;
  if (!line_->due(now, total && done == *total)) return;
  std::vector<detail::LinePart> out;
  out.push_back({0, total ? printed("validation %lld/%lld", static_cast<long long>(done), static_cast<long long>(*total))
                          : printed("validation %lld", static_cast<long long>(done))});
  if (total && done > 1)
    out.push_back(
        {1, "eta " + detail::clock_text((now - first_validated_) / static_cast<double>(done - 1) * static_cast<double>(*total - done))});
  line_->show(std::move(out), done, total);
}

void Progress::on_validation_end(TrainLoop& loop, const Scalars& metrics) {
  if (loop.windows_per_epoch() == in_epoch_) return line_->clear();  // the line of the epoch shows the metrics
  on_stop_validation(loop, metrics);
}

void Progress::on_stop_validation(TrainLoop& loop, const Scalars& metrics) {
  line_->clear();
  write_(wrapped_line(printed("epoch %lld step %lld:", static_cast<long long>(loop.epoch() + 1), static_cast<long long>(in_epoch_)) +
                          " val" + metrics_text(metrics),
                      width()));
}

void Progress::on_epoch_end(TrainLoop& loop, const EpochReport& r) {
  line_->clear();
  auto out = printed("epoch %lld done:", static_cast<long long>(r.epoch + 1)) + " train" + metrics_text(r.train);
  if (!r.val.empty()) out += "  | val" + metrics_text(r.val);
  out += "  | " + rate_text(r.samples_per_second, r.weight_per_second, loop.parts().task->weight_unit()) + ", " + human_duration(r.seconds);
  if (r.flops_per_second > 0) out += printed(", %.3g GFLOP/s (MFU %.1f %%)", 1e-9 * r.flops_per_second, 100 * r.mfu);
  if (r.skipped > 0) out += printed(", %lld skipped", static_cast<long long>(r.skipped));
  write_(wrapped_line(out, width()));
}

void Progress::on_checkpoint(TrainLoop&, const std::string& path) {
  line_->clear();
  write_(wrapped_line("saved " + detail::visible_text(path), width()));
}

}  // namespace npu_train
