#include "train/callbacks/epoch_sums.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {

void EpochSums::clear() {
  metrics_.reset();
  samples_ = skipped_ = 0;
  weight_ = seconds_ = data_wait_ = 0;
}

Scalars EpochSums::train() const {
  auto out = metrics_.value();
  add_metrics_of_loss(task_, out);
  return out;
}

void EpochSums::add(const StepReport& report) {
  if (report.taken) metrics_.add(report.metrics, report.counts);
  samples_ += report.samples;
  weight_ += report.weight;
  skipped_ += report.taken ? 0 : 1;
  seconds_ += report.seconds;
  data_wait_ += report.data_wait;
}

void EpochSums::describe(EpochReport& report) const {
  report.train = train();
  report.skipped = skipped_;
  report.seconds = seconds_;
  report.samples_per_second = seconds_ > 0 ? static_cast<double>(samples_) / seconds_ : 0;
  report.weight_per_second = seconds_ > 0 ? weight_ / seconds_ : 0;
  report.flops_per_second = flops_.per_sample * report.samples_per_second;
  report.mfu = flops_.of_products > 0 ? report.flops_per_second / flops_.of_products : 0;
  report.data_wait = data_wait_;
}

State EpochSums::state() const {
  State out;
  for (const auto& [name, meter] : metrics_.meters()) {
    out.values["epoch/sum/" + name] = meter.sum();
    out.values["epoch/weight/" + name] = meter.weight();
  }
  out.values["epoch/samples"] = samples_;
  if (!task_.weight_unit().empty()) out.values["epoch/weight"] = weight_;
  out.values["epoch/skipped"] = skipped_;
  out.values["epoch/seconds"] = seconds_;
  out.values["epoch/data_wait"] = data_wait_;
  return out;
}

void EpochSums::load_state(const State& state) {
  EpochSums loaded(task_);
  auto names = task_.metric_names();
  names.insert(names.begin(), "loss");  // in the order of reports
  for (const auto& name : names)
    if (const auto key = "epoch/sum/" + name; state.values.count(key) > 0)
      loaded.metrics_.restore(name, state.number(key, "loop"), state.number("epoch/weight/" + name, "loop"));
  samples_ = state.integer("epoch/samples", "loop");
  weight_ = state.values.count("epoch/weight") > 0 ? state.number("epoch/weight", "loop") : 0;  // saved only for tasks with a weight unit
  skipped_ = state.integer("epoch/skipped", "loop");
  seconds_ = state.number("epoch/seconds", "loop");
  data_wait_ = state.number("epoch/data_wait", "loop");
  metrics_ = std::move(loaded.metrics_);
}

void EpochSums::report_other_names(const State& state) const {
  constexpr std::string_view kSum = "epoch/sum/";
  auto names = task_.metric_names();
  names.insert(names.begin(), "loss");
  std::vector<std::string> saved, gone, added;
  for (const auto& [key, value] : state.values)
    if (key.starts_with(kSum)) saved.push_back(key.substr(kSum.size()));
  if (saved.empty()) return;
  const auto has = [](const auto& list, const std::string& name) { return std::find(list.begin(), list.end(), name) != list.end(); };
  std::copy_if(saved.begin(), saved.end(), std::back_inserter(gone), [&](const auto& name) { return !has(names, name); });
  std::copy_if(names.begin(), names.end(), std::back_inserter(added), [&](const auto& name) { return !has(saved, name); });
  if (!gone.empty()) log_warning("metrics of the epoch that this run no longer has: ", join(gone));
  if (!added.empty())
    log_warning("metrics that the epoch did not have before this checkpoint: ", join(added), "; its averages are of the steps after it");
}

}  // namespace npu_train::detail
