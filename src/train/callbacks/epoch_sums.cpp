#include "train/callbacks/epoch_sums.hpp"

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

void EpochSums::add(const StepReport& report, double weight) {
  std::vector<double> weights(report.metrics.size(), static_cast<double>(report.samples));
  weights[0] = weight;  // of the loss, which is first
  if (report.taken) metrics_.add(report.metrics, weights);
  samples_ += report.samples;
  weight_ += weight;
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
  weight_ = state.values.count("epoch/weight") > 0 ? state.number("epoch/weight", "loop") : 0;  // as above
  skipped_ = state.integer("epoch/skipped", "loop");
  seconds_ = state.number("epoch/seconds", "loop");
  data_wait_ = state.number("epoch/data_wait", "loop");
  metrics_ = std::move(loaded.metrics_);
}

}  // namespace npu_train::detail
