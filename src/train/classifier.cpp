#include "npu_train/train/classifier.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/stack.h>
#include <torch/nn/module.h>

#include "npu_train/core/error.hpp"
#include "npu_train/nn/named_state.hpp"

namespace npu_train {

const ConfigTable<ClassifierOptions>& ClassifierOptions::config_table() {
  static const auto table = ConfigTable<ClassifierOptions>("task classifier")
                                .field("label_smoothing", &ClassifierOptions::label_smoothing,
                                       "share of the target that is spread over all classes (0.1 for ImageNet recipes)", between(0, 0.999));
  return table;
}

namespace {

/// What both tasks share: the module behind them.
class ModelTask : public Task {
 public:
  explicit ModelTask(Model model) : model_(std::move(model)) {
    check(model_.module != nullptr && model_.forward != nullptr, ErrorKind::Usage, "Task", "the model has no module or no forward");
  }
  at::Tensor predict(const at::Tensor& input) override { return model_.forward(input); }
  ParameterSet parameters() override { return parameters_of(*model_.module); }
  std::vector<NamedTensor> buffers() override { return buffers_of(*model_.module); }
  std::vector<std::string> norm_parameters() override { return norm_parameters_of(*model_.module); }
  std::map<std::string, std::string> module_types() override { return npu_train::module_types(*model_.module); }
  bool capturable() const override { return model_.capturable; }
  void set_training(bool on) override { model_.module->train(on); }
  void to(c10::Device device) override { model_.module->to(device); }

 protected:
  Model model_;
};

/// Mean of per-sample values over the samples that the mask keeps.
at::Tensor masked_mean(const at::Tensor& values, const at::Tensor& mask) {
  const auto m = mask.to(values.scalar_type());
  return (values * m).sum() / m.sum();
}

/// [N, ...] -> [N], the mean over all but the first dimension.
at::Tensor per_sample(const at::Tensor& values) { return values.reshape({values.size(0), -1}).mean(1); }

class Classifier final : public ModelTask {
 public:
  Classifier(Model model, ClassifierOptions options) : ModelTask(std::move(model)), options_(options) {
    check(options.label_smoothing >= 0 && options.label_smoothing < 1, ErrorKind::Usage, "classifier", "label_smoothing is ",
          options.label_smoothing, "; allowed: 0 up to, not including, 1");
  }

  StepOutput training_step(const Batch& batch) override { return output_of(batch, options_.label_smoothing); }
  StepOutput validation_step(const Batch& batch) override { return output_of(batch, 0); }

  std::vector<std::string> metric_names() const override { return {"acc1", "acc5"}; }

  at::Tensor metric_sums(const StepOutput& output, const Batch& batch) override {
    const auto logits = output.outputs.detach();
    const auto target = batch.target().dim() == 2 ? batch.target().argmax(1) : batch.target();
    // the rank of the right class, counting ties against it; a NaN compares false with all and has rank 0: wrong
    const auto rank = logits.ge(logits.gather(1, target.unsqueeze(1))).sum(1);
    auto right = at::stack({rank.eq(1), rank.ge(1).logical_and_(rank.le(5))}).to(at::kFloat);
    if (batch.has("mask")) right = right * batch.at("mask").to(at::kFloat);
    return right.sum(1).mul_(100);
  }

 private:
  StepOutput output_of(const Batch& batch, double smoothing) {
    const auto logits = model_.forward(batch.input());
    const auto& target = batch.target();
    check(logits.dim() == 2 && logits.size(0) == batch.input().size(0), ErrorKind::Usage, "classifier", "the model gave ", logits.sizes(),
          " for an input of ", batch.input().sizes(), "; a classifier gives [batch, classes]");
    check(target.dim() == 1 || target.sizes() == logits.sizes(), ErrorKind::Usage, "classifier", "targets have shape ", target.sizes(),
          " for logits ", logits.sizes(), "; allowed: [batch] or [batch, classes]");
    const auto in_fp32 = logits.to(at::kFloat);
    if (!batch.has("mask"))
      return {at::cross_entropy_loss(in_fp32, target, {}, at::Reduction::Mean, -100, smoothing), batch.weight, in_fp32};
    const auto each = at::cross_entropy_loss(in_fp32, target, {}, at::Reduction::None, -100, smoothing);
    return {masked_mean(each, batch.at("mask")), batch.weight, in_fp32};
  }

  ClassifierOptions options_;
};

class Regressor final : public ModelTask {
 public:
  using ModelTask::ModelTask;

  StepOutput training_step(const Batch& batch) override {
    const auto outputs = model_.forward(batch.input()).to(at::kFloat);
    check(outputs.sizes() == batch.target().sizes(), ErrorKind::Usage, "regressor", "the model gave ", outputs.sizes(),
          " and targets have ", batch.target().sizes(), "; they must be equal");
    const auto target = batch.target().to(at::kFloat);
    if (!batch.has("mask")) return {at::mse_loss(outputs, target), batch.weight, outputs};
    return {masked_mean(per_sample(at::mse_loss(outputs, target, at::Reduction::None)), batch.at("mask")), batch.weight, outputs};
  }

  std::vector<std::string> metric_names() const override { return {"mae"}; }

  at::Tensor metric_sums(const StepOutput& output, const Batch& batch) override {
    auto error = per_sample((output.outputs.detach() - batch.target().to(at::kFloat)).abs());
    if (batch.has("mask")) error = error * batch.at("mask").to(error.scalar_type());
    return error.sum().reshape({1});
  }
};

}  // namespace

std::shared_ptr<Task> classifier(Model model, ClassifierOptions options) { return std::make_shared<Classifier>(std::move(model), options); }

std::shared_ptr<Task> regressor(Model model) { return std::make_shared<Regressor>(std::move(model)); }

}  // namespace npu_train
