#include "npu_train/train/metric.hpp"

#include <ATen/TensorOperators.h>

#include "npu_train/core/error.hpp"
#include "train/metric_parts.hpp"

namespace npu_train {
namespace detail {

at::Tensor per_sample(const at::Tensor& values) { return values.reshape({values.size(0), -1}).mean(1); }

at::Tensor unmasked(const at::Tensor& each, const Batch& batch) {
  return batch.has("mask") ? each * batch.at("mask").to(each.scalar_type()) : each;
}

at::Tensor rank_of_target(const StepOutput& output, const Batch& batch) {
  const auto logits = output.outputs.first().detach();
  const auto target = batch.target().dim() == 2 ? batch.target().argmax(1) : batch.target();
  return logits.ge(logits.gather(1, target.unsqueeze(1))).sum(1);
}

}  // namespace detail

Metric accuracy(int64_t k) {
  check(k >= 1, ErrorKind::Usage, "accuracy", "k is ", k, "; it must be at least 1");
  const auto sums = [k](const StepOutput& output, const Batch& batch) {
    const auto rank = detail::rank_of_target(output, batch);
    return detail::unmasked(rank.ge(1).logical_and_(rank.le(k)).to(at::kFloat), batch).sum().mul_(100);
  };
  return {"acc" + std::to_string(k), sums};
}

Metric mean_absolute_error() {
  return {"mae", [](const StepOutput& output, const Batch& batch) {
            const auto error = (output.outputs.first().detach() - batch.target().to(at::kFloat)).abs();
            return detail::unmasked(detail::per_sample(error), batch).sum();
          }};
}

}  // namespace npu_train
