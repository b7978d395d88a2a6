#include "npu_train/train/monitors.hpp"

#include <algorithm>
#include <cmath>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {

void check_monitors(const Task& task, const CheckpointOptions& checkpoint, const EarlyStoppingOptions& early, const std::string& of_rate) {
  const auto of_steps = step_metric_names(task), of_validations = all_metric_names(task);
  const auto known = [&](const char* key, const std::string& monitor) {
    const auto metric = monitor.starts_with("train/") ? monitor.substr(6) : (monitor.starts_with("val/") ? monitor.substr(4) : monitor);
    const auto& names = is_of_training(monitor) ? of_steps : of_validations;
    if (metric == "loss" || std::find(names.begin(), names.end(), metric) != names.end()) return;
    auto allowed = of_steps;
    allowed.insert(allowed.begin(), "loss");
    const std::vector<std::string> further(of_validations.begin() + static_cast<std::ptrdiff_t>(of_steps.size()), of_validations.end());
    throw Error(ErrorKind::Usage, key,
                "no metric '" + monitor + "'; there are, under train/ and val/: " + join(allowed) +
                    (further.empty() ? "" : "; under val/ alone: " + join(further)));
  };
  if (checkpoint.monitor != "auto") known("checkpoint.monitor", checkpoint.monitor);
  if (early.enabled) known("early_stopping.monitor", early.monitor);
  if (!of_rate.empty()) known("lr_scheduler.monitor", of_rate);
}

bool validates(const TrainerOptions& options, bool has_data) {
  return has_data && options.check_val_every_n_epoch > 0 && options.limit_val_batches != 0;
}

void check_early_stopping(const EarlyStoppingOptions& early, const TrainerOptions& options, bool has_data) {
  check(!early.enabled || is_of_training(early.monitor) || validates(options, has_data), ErrorKind::Usage, "early_stopping.monitor", "'",
        early.monitor, "' is measured on validation data, and this run does not validate");
}

bool is_of_training(const std::string& monitor) { return monitor.starts_with("train/"); }

double monitored(const std::string& monitor, const Scalars& train, const Scalars& val) {
  const auto nan = std::nan("");
  if (!std::isfinite(scalar_or(is_of_training(monitor) ? train : val, "loss", 0))) return nan;
  if (is_of_training(monitor)) return scalar_or(train, monitor.substr(6), nan);
  return scalar_or(val, monitor.starts_with("val/") ? monitor.substr(4) : monitor, nan);
}

bool improves(double value, double best, bool larger, double delta) {
  return !std::isnan(value) && (std::isnan(best) || (larger ? value > best + delta : value < best - delta));
}

}  // namespace npu_train::detail
