#include "train/callbacks/pending_step.hpp"

#include <ATen/core/Tensor.h>

namespace npu_train::detail {

StepReport PendingStep::read(const std::vector<std::string>& metric_names) const {
  auto out = report;
  const auto host = numbers.get();
  const float* p = host.const_data_ptr<float>();
  out.metrics.emplace_back("loss", p[0] / result.loss_weight);
  for (size_t i = 0; i < metric_names.size(); ++i) out.metrics.emplace_back(metric_names[i], p[1 + i] / result.samples);
  out.grad_norm = p[host.numel() - 1];
  return out;
}

}  // namespace npu_train::detail
