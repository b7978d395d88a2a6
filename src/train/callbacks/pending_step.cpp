#include "train/callbacks/pending_step.hpp"

#include <ATen/core/Tensor.h>

#include <cmath>

namespace npu_train::detail {

StepReport PendingStep::read(const std::vector<std::string>& metric_names) const {
  auto out = report;
  const auto host = numbers.get();
  const float* p = host.const_data_ptr<float>();
  out.metrics.emplace_back("loss", result.empty ? std::nan("") : p[0] / result.loss_weight);
  out.counts.push_back(result.weight);
  const auto count = metric_names.size();
  for (size_t i = 0; i < count; ++i) {
    out.metrics.emplace_back(metric_names[i], static_cast<double>(p[1 + i]) / p[1 + count + i]);
    out.counts.push_back(p[1 + count + i]);
  }
  out.grad_norm = p[host.numel() - 1];
  return out;
}

void add_metrics_of_loss(const Task& task, StepReport& report) {
  npu_train::add_metrics_of_loss(task, report.metrics);
  report.counts.resize(report.metrics.size(), report.counts.front());
}

}  // namespace npu_train::detail
