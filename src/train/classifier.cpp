#include "npu_train/train/classifier.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "npu_train/core/error.hpp"
#include "train/metric_parts.hpp"

namespace npu_train {

namespace {

/// Returns the mean of per-sample values over the samples that the mask keeps.
at::Tensor masked_mean(const at::Tensor& values, const at::Tensor& mask) {
  const auto m = mask.to(values.scalar_type());
  return (values * m).sum() / m.sum();
}

/// Rejects classes out of range, which a device would not report. Checks only on the host, to avoid reading from a device in each step.
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

// Returns acc1 and acc5. Returns only acc1 for at most 5 classes, because their acc5 is always 100 %.
std::vector<Metric> usual_metrics(int64_t classes) {
  std::vector<Metric> out = {accuracy(1)};
  if (classes <= 0 || classes > 5) out.push_back(accuracy(5));
  return out;
}

class Classifier final : public ModelTask {
 public:
  Classifier(const Model& model, const ClassifierOptions& options)
      : ModelTask(model, options.metrics.empty() ? usual_metrics(model.num_classes) : options.metrics),
        acc1_and_acc5_(options.metrics.empty() && ModelTask::metric_names().size() == 2),
        smoothing_(options.label_smoothing),
        focal_gamma_(options.focal_gamma) {
    check(smoothing_ >= 0 && smoothing_ < 1, ErrorKind::Usage, "classifier", "label_smoothing is ", smoothing_,
          "; allowed: 0 up to, not including, 1");
    check(focal_gamma_ >= 0 && std::isfinite(focal_gamma_), ErrorKind::Usage, "classifier", "focal_gamma is ", focal_gamma_,
          "; allowed: at least 0");
    check(focal_gamma_ == 0 || smoothing_ == 0, ErrorKind::Usage, "classifier", "focal_gamma is ", focal_gamma_, " and label_smoothing ",
          smoothing_, "; allowed: one of them, since the focal loss needs one right class");
    const auto& weights = options.class_weights;
    if (weights.empty()) return;
    check(std::all_of(weights.begin(), weights.end(), [](double w) { return w >= 0 && std::isfinite(w); }), ErrorKind::Usage, "classifier",
          "class_weights has a number that is negative or not finite; allowed: numbers of at least 0");
    check(model.num_classes <= 0 || static_cast<int64_t>(weights.size()) == model.num_classes, ErrorKind::Usage, "classifier",
          "class_weights has ", weights.size(), " numbers, and the model ", model.num_classes, " classes; allowed: one for each");
    class_weights_ = at::tensor(weights, at::kFloat);
  }

  StepOutput training_step(const ForwardContext& context) override { return output_of(context, /*training=*/true); }
  StepOutput validation_step(const ForwardContext& context) override { return output_of(context, /*training=*/false); }

  void to(c10::Device device) override {
    ModelTask::to(device);
    if (class_weights_.defined()) class_weights_ = class_weights_.to(device);
  }

  at::Tensor metric_sums(const StepOutput& output, const Batch& batch) override {
    if (!acc1_and_acc5_) return ModelTask::metric_sums(output, batch);
    const auto rank = detail::rank_of_target(output, batch);  // computed once for both metrics
    return detail::unmasked(at::stack({rank.eq(1), rank.ge(1).logical_and_(rank.le(5))}).to(at::kFloat), batch).sum(1).mul_(100);
  }

 private:
  // Returns the loss of each sample [batch], with class weights and the focal factor; 0 for an ignored sample.
  at::Tensor weighted_losses(const at::Tensor& logits, const at::Tensor& target) const {
    const bool labels = target.dim() == 1;
    check(focal_gamma_ == 0 || labels, ErrorKind::Usage, "classifier", "focal_gamma needs targets [batch]; they have shape ",
          target.sizes(), "; hint: data.mixup_alpha=0 data.cutmix_alpha=0");
    check(!class_weights_.defined() || class_weights_.size(0) == logits.size(1), ErrorKind::Usage, "classifier", "class_weights has ",
          class_weights_.defined() ? class_weights_.size(0) : 0, " numbers, and the model ", logits.size(1),
          " classes; allowed: one for each");
    if (focal_gamma_ == 0) return at::cross_entropy_loss(logits, target, class_weights_, at::Reduction::None, -100, smoothing_);
    auto each = at::cross_entropy_loss(logits, target, {}, at::Reduction::None, -100);
    // The lower bound keeps the gradient of the power finite for a sample with probability 1; the loss of that sample is 0 all the same.
    each = at::expm1(-each).neg().clamp_min(1e-12).pow(focal_gamma_) * each;
    return class_weights_.defined() ? each * class_weights_.index_select(0, target.clamp_min(0)) : each;
  }

  StepOutput output_of(const ForwardContext& context, bool training) {
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
    const double smoothing = training ? smoothing_ : 0;
    if (training && (class_weights_.defined() || focal_gamma_ > 0)) {
      const auto each = weighted_losses(in_fp32, target);
      const auto counted = target.dim() == 1 ? target.ne(-100).to(at::kFloat) : at::ones_like(each);
      return {masked_mean(each, batch.has("mask") ? counted * batch.at("mask").to(at::kFloat) : counted), batch.weight, in_fp32};
    }
    if (!batch.has("mask"))
      return {at::cross_entropy_loss(in_fp32, target, {}, at::Reduction::Mean, -100, smoothing), batch.weight, in_fp32};
    const auto each = at::cross_entropy_loss(in_fp32, target, {}, at::Reduction::None, -100, smoothing);
    return {masked_mean(each, batch.at("mask")), batch.weight, in_fp32};
  }

  bool acc1_and_acc5_;
  double smoothing_, focal_gamma_;
  at::Tensor class_weights_;  // fp32 [classes] on the model's device; undefined: none
};

class MultilabelClassifier final : public ModelTask {
 public:
  MultilabelClassifier(const Model& model, const MultilabelOptions& options)
      : ModelTask(model, options.metrics.empty() ? std::vector{multilabel_accuracy(), mean_average_precision()} : options.metrics) {
    const auto& weights = options.pos_weight;
    if (weights.empty()) return;
    check(std::all_of(weights.begin(), weights.end(), [](double w) { return w > 0 && std::isfinite(w); }), ErrorKind::Usage,
          "multilabel_classifier", "pos_weight has a number that is not positive and finite");
    check(model.num_classes <= 0 || static_cast<int64_t>(weights.size()) == model.num_classes, ErrorKind::Usage, "multilabel_classifier",
          "pos_weight has ", weights.size(), " numbers, and the model ", model.num_classes, " classes; allowed: one for each");
    pos_weight_ = at::tensor(weights, at::kFloat);
  }

  StepOutput training_step(const ForwardContext& context) override { return output_of(context, pos_weight_); }
  StepOutput validation_step(const ForwardContext& context) override { return output_of(context, {}); }

  at::Tensor example_target(const Batch& inputs) const override { return at::randint(2, {inputs.size, model_.num_classes}, at::kFloat); }

  void to(c10::Device device) override {
    ModelTask::to(device);
    if (pos_weight_.defined()) pos_weight_ = pos_weight_.to(device);
  }

 private:
  StepOutput output_of(const ForwardContext& context, const at::Tensor& pos_weight) {
    const auto& batch = context.batch();
    const auto logits = model_.forward(context).first().to(at::kFloat);
    check(logits.dim() == 2 && logits.sizes() == batch.target().sizes(), ErrorKind::Usage, "multilabel_classifier", "the model gave ",
          logits.sizes(), " and targets have ", batch.target().sizes(),
          "; allowed: [batch, classes] for both; hint: labels or values of data.name=image_list");
    check_shares(batch);
    const auto each = at::binary_cross_entropy_with_logits(logits, batch.target().to(at::kFloat), {}, pos_weight, at::Reduction::None);
    if (!batch.has("mask")) return {each.mean(), batch.weight, logits};
    return {masked_mean(detail::per_sample(each), batch.at("mask")), batch.weight, logits};
  }

  // Rejects targets outside 0 to 1, which binary cross entropy would accept. Checks only on the host, like check_labels().
  static void check_shares(const Batch& batch) {
    if (!batch.target().is_cpu()) return;
    const auto target = batch.target().to(at::kFloat).contiguous();
    const auto* shares = target.const_data_ptr<float>();
    for (int64_t i = 0; i < target.numel(); ++i) {
      if (shares[i] >= 0 && shares[i] <= 1) continue;
      const auto row = i / target.size(1);
      const bool named = row < static_cast<int64_t>(batch.ids.size());
      throw Error(ErrorKind::Data, "multilabel_classifier",
                  str_cat("the target of ", named ? "sample " : "row ", named ? batch.ids[static_cast<size_t>(row)] : row, " for class ",
                          i % target.size(1), " is ", shares[i], "; allowed: 0 to 1"),
                  "task={name: regressor} for numbers");
    }
  }

  at::Tensor pos_weight_;  // fp32 [classes] on the model's device; undefined: none
};

class Regressor final : public ModelTask {
 public:
  at::Tensor example_target(const Batch& inputs) const override {
    return model_.num_classes > 0 ? at::randn({inputs.size, model_.num_classes}) : ModelTask::example_target(inputs);
  }

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

std::vector<double> balanced_class_weights(const std::vector<int64_t>& samples) {
  const auto all = static_cast<double>(std::accumulate(samples.begin(), samples.end(), int64_t{0}));
  std::vector<double> out;
  for (size_t c = 0; c < samples.size(); ++c) {
    check(samples[c] > 0, ErrorKind::Data, "classifier", "class ", c, " has no training samples, so that it has no balanced weight");
    out.push_back(all / (static_cast<double>(samples.size()) * static_cast<double>(samples[c])));
  }
  return out;
}

std::shared_ptr<Task> classifier(Model model, ClassifierOptions options) { return std::make_shared<Classifier>(model, options); }

std::shared_ptr<Task> multilabel_classifier(Model model, MultilabelOptions options) {
  return std::make_shared<MultilabelClassifier>(model, options);
}

std::shared_ptr<Task> regressor(Model model, std::vector<Metric> metrics) {
  return std::make_shared<Regressor>(std::move(model), std::move(metrics));
}

}  // namespace npu_train
