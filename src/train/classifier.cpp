#include "npu_train/train/classifier.hpp"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/stack.h>

#include "npu_train/core/error.hpp"
#include "train/metric_parts.hpp"

namespace npu_train {

namespace {

/// Returns the mean of per-sample values over the samples that the mask keeps.
at::Tensor masked_mean(const at::Tensor& values, const at::Tensor& mask) {
  const auto m = mask.to(values.scalar_type());
  return (values * m).sum() / m.sum();
}

/// Rejects classes out of range, which a device would not report. Only on the host, to avoid reading from a device in each step.
void check_labels(const at::Tensor& target, int64_t classes, const Batch& batch) {
  constexpr int64_t kIgnored = -100;
  if (!target.is_cpu() || target.dim() != 1 || target.scalar_type() != at::kLong || !target.is_contiguous()) return;
  const auto* labels = target.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < target.size(0); ++i) {
    if (labels[i] == kIgnored || (labels[i] >= 0 && labels[i] < classes)) continue;
    const bool named = i < static_cast<int64_t>(batch.ids.size());
    throw Error(ErrorKind::Data, "classifier",
                str_cat("the target of ", named ? "sample " : "row ", named ? batch.ids[static_cast<size_t>(i)] : i, " is ", labels[i],
                        ", and the model has ", classes, " classes; allowed: 0 to ", classes - 1),
                labels[i] < 0 ? "correct the label" : str_cat("correct the label, or set model.num_classes=", labels[i] + 1));
  }
}

class Classifier final : public ModelTask {
 public:
  Classifier(Model model, const ClassifierOptions& options)
      : ModelTask(std::move(model), options.metrics.empty() ? std::vector{accuracy(1), accuracy(5)} : options.metrics),
        usual_metrics_(options.metrics.empty()),
        smoothing_(options.label_smoothing) {
    check(options.label_smoothing >= 0 && options.label_smoothing < 1, ErrorKind::Usage, "classifier", "label_smoothing is ",
          options.label_smoothing, "; allowed: 0 up to, not including, 1");
  }

  StepOutput training_step(const ForwardContext& context) override { return output_of(context, smoothing_); }
  StepOutput validation_step(const ForwardContext& context) override { return output_of(context, 0); }

  at::Tensor metric_sums(const StepOutput& output, const Batch& batch) override {
    if (!usual_metrics_) return ModelTask::metric_sums(output, batch);
    const auto rank = detail::rank_of_target(output, batch);  // once for both metrics
    return detail::unmasked(at::stack({rank.eq(1), rank.ge(1).logical_and_(rank.le(5))}).to(at::kFloat), batch).sum(1).mul_(100);
  }

 private:
  StepOutput output_of(const ForwardContext& context, double smoothing) {
    const auto& batch = context.batch();
    auto outputs = model_.forward(context);
    const auto logits = outputs.first();
    const auto& target = batch.target();
    check(logits.dim() == 2 && logits.size(0) == batch.rows(), ErrorKind::Usage, "classifier", "the model gave ", logits.sizes(),
          " for a batch of ", batch.rows(), "; a classifier gives [batch, classes]");
    check(target.dim() == 1 || target.sizes() == logits.sizes(), ErrorKind::Usage, "classifier", "targets have shape ", target.sizes(),
          " for logits ", logits.sizes(), "; allowed: [batch] or [batch, classes]");
    check_labels(target, logits.size(1), batch);
    const auto in_fp32 = logits.to(at::kFloat);
    if (!batch.has("mask"))
      return {at::cross_entropy_loss(in_fp32, target, {}, at::Reduction::Mean, -100, smoothing), batch.weight, in_fp32};
    const auto each = at::cross_entropy_loss(in_fp32, target, {}, at::Reduction::None, -100, smoothing);
    return {masked_mean(each, batch.at("mask")), batch.weight, in_fp32};
  }

  bool usual_metrics_;
  double smoothing_;
};

class Regressor final : public ModelTask {
 public:
  Regressor(Model model, std::vector<Metric> metrics)
      : ModelTask(std::move(model), metrics.empty() ? std::vector{mean_absolute_error()} : std::move(metrics)) {}

  StepOutput training_step(const ForwardContext& context) override {
    const auto& batch = context.batch();
    const auto outputs = model_.forward(context).first().to(at::kFloat);
    check(outputs.sizes() == batch.target().sizes(), ErrorKind::Usage, "regressor", "the model gave ", outputs.sizes(),
          " and targets have ", batch.target().sizes(), "; they must be equal");
    const auto target = batch.target().to(at::kFloat);
    if (!batch.has("mask")) return {at::mse_loss(outputs, target), batch.weight, outputs};
    return {masked_mean(detail::per_sample(at::mse_loss(outputs, target, at::Reduction::None)), batch.at("mask")), batch.weight, outputs};
  }
};

}  // namespace

std::shared_ptr<Task> classifier(Model model, ClassifierOptions options) {
  return std::make_shared<Classifier>(std::move(model), std::move(options));
}

std::shared_ptr<Task> regressor(Model model, std::vector<Metric> metrics) {
  return std::make_shared<Regressor>(std::move(model), std::move(metrics));
}

}  // namespace npu_train
