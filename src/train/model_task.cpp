#include "npu_train/train/model_task.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/module.h>

#include <set>

#include "npu_train/core/error.hpp"
#include "npu_train/nn/module_state.hpp"

namespace npu_train {
namespace {

class LossTask final : public ModelTask {
 public:
  LossTask(Model model, LossFunction loss, std::vector<Metric> metrics)
      : ModelTask(std::move(model), std::move(metrics)), loss_(std::move(loss)) {
    check(loss_ != nullptr, ErrorKind::Usage, "task", "the loss is an empty function");
  }

  StepOutput training_step(const ForwardContext& context) override {
    auto outputs = model_.forward(context);
    auto loss = loss_(outputs, context.batch());
    return {std::move(loss), context.batch().weight, std::move(outputs)};
  }

 private:
  LossFunction loss_;
};

// Returns a metric's sum or count as fp32 [].
at::Tensor number_of(const Metric& metric, const at::Tensor& given) {
  check(given.defined(), ErrorKind::Usage, "Task", "the metric '", metric.name, "' gave an undefined tensor; it must give one number");
  check(given.numel() == 1, ErrorKind::Usage, "Task", "the metric '", metric.name, "' gave a tensor of ", given.sizes(),
        "; it must give one number");
  return given.detach().to(at::kFloat).reshape({});
}

}  // namespace

ModelTask::ModelTask(Model model, std::vector<Metric> metrics) : model_(std::move(model)), metrics_(std::move(metrics)) {
  check(model_.module != nullptr && model_.forward, ErrorKind::Usage, "Task", "the model has no module or no forward");
  std::set<std::string> names;
  for (const auto& metric : metrics_) {
    check(!metric.name.empty(), ErrorKind::Usage, "Task", "a metric has no name");
    const int kinds = (metric.sums != nullptr) + (metric.of_loss != nullptr) + (metric.rows != nullptr);
    check(kinds == 1, ErrorKind::Usage, "Task", "a metric '", metric.name, "' has ", kinds == 0 ? "no function" : "two functions",
          "; allowed: sums, or of_loss, or rows with of_rows");
    check((metric.rows != nullptr) == (metric.of_rows != nullptr), ErrorKind::Usage, "Task", "a metric '", metric.name, "' has ",
          metric.rows ? "rows and no of_rows" : "of_rows and no rows", "; allowed: both or neither");
    check(metric.counts == nullptr || metric.sums != nullptr, ErrorKind::Usage, "Task", "a metric '", metric.name,
          "' has counts and no sums; allowed: counts with sums");
    check(names.insert(metric.name).second, ErrorKind::Usage, "Task", "there are two metrics '", metric.name, "'");
  }
}

Outputs ModelTask::forward(const Batch& batch) { return model_.forward.takes_tensor() ? predict(batch.input()) : model_.forward(batch); }

at::Tensor ModelTask::example_target(const Batch& inputs) const {
  check(model_.num_classes > 0, ErrorKind::Usage, "Task", "the model '", model_.name,
        "' has no classes from which targets can be drawn; hint: for token ids use task={name: language_model}, or override "
        "Task::example_target()");
  return at::randint(model_.num_classes, {inputs.size}, at::kLong);
}

ParameterSet ModelTask::parameters() { return parameters_of(*model_.module); }

std::vector<NamedTensor> ModelTask::buffers() { return buffers_of(*model_.module); }

std::vector<std::string> ModelTask::norm_parameters() { return norm_parameters_of(*model_.module); }

std::map<std::string, std::string> ModelTask::module_types() { return npu_train::module_types(*model_.module); }

std::vector<std::string> ModelTask::metric_names() const {
  std::vector<std::string> out;
  for (const auto& metric : metrics_)
    if (metric.sums) out.push_back(metric.name);
  return out;
}

at::Tensor ModelTask::metric_sums(const StepOutput& output, const Batch& batch) {
  std::vector<at::Tensor> sums, counts;
  bool counted = false;
  for (const auto& metric : metrics_) {
    if (!metric.sums) continue;
    sums.push_back(number_of(metric, metric.sums(output, batch)));
    counts.push_back(metric.counts ? number_of(metric, metric.counts(output, batch))
                                   : at::full({}, static_cast<double>(batch.size), sums.back().options()));
    counted = counted || metric.counts != nullptr;
  }
  if (sums.empty()) return {};
  return counted ? at::stack({at::stack(sums), at::stack(counts)}) : at::stack(sums);
}

Scalars ModelTask::metrics_of_loss(double loss) const {
  Scalars out;
  for (const auto& metric : metrics_)
    if (metric.of_loss) out.emplace_back(metric.name, metric.of_loss(loss));
  return out;
}

std::vector<std::string> ModelTask::epoch_metric_names() const {
  std::vector<std::string> out;
  for (const auto& metric : metrics_)
    if (metric.rows) out.push_back(metric.name);
  return out;
}

// Concatenates the rows of all metrics. Each row begins with the metrics' numbers of columns, so that a rank that has seen no batch can
// split the rows of other ranks.
at::Tensor ModelTask::epoch_rows(const StepOutput& output, const Batch& batch) const {
  std::vector<at::Tensor> rows = {{}};
  std::vector<double> widths;
  for (const auto& metric : metrics_) {
    if (!metric.rows) continue;
    rows.push_back(metric.rows(output, batch).to(at::kFloat));
    const auto sizes = rows.back().sizes();
    check(sizes.size() == 2 && sizes[0] == batch.size, ErrorKind::Usage, "Task", "the metric '", metric.name, "' gave rows of ", sizes,
          " for ", batch.size, " samples; allowed: [samples, columns]");
    widths.push_back(static_cast<double>(sizes[1]));
  }
  rows.front() = at::tensor(widths, rows.back().options()).expand({batch.size, -1});
  return at::cat(rows, 1);
}

std::vector<double> ModelTask::epoch_sums(const at::Tensor& rows, int64_t /*first*/, int64_t count) const {
  std::vector<double> out;
  auto at = static_cast<int64_t>(epoch_metric_names().size());
  for (const auto& metric : metrics_) {
    if (!metric.rows) continue;
    const auto width = rows[0][static_cast<int64_t>(out.size())].item<int64_t>();
    // Every rank computes the value from all rows. It is multiplied by the count, because the sums over ranks are divided by the number of
    // samples.
    out.push_back(metric.of_rows(rows.narrow(1, at, width)) * static_cast<double>(count));
    at += width;
  }
  return out;
}

void ModelTask::set_training(bool on) { model_.module->train(on); }

void ModelTask::to(c10::Device device) { model_.module->to(device); }

std::shared_ptr<Task> task(Model model, LossFunction loss, std::vector<Metric> metrics) {
  return std::make_shared<LossTask>(std::move(model), std::move(loss), std::move(metrics));
}

}  // namespace npu_train
