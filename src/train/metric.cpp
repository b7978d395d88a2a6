#include "npu_train/train/metric.hpp"

#include <ATen/TensorOperators.h>

#include <cmath>

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

Metric token_accuracy(int64_t ignore_index, std::function<at::Tensor(const StepOutput&, const Batch&)> targets) {
  const auto right = [ignore_index, targets](const StepOutput& output, const Batch& batch) {
    const auto logits = output.outputs.first().detach(), wanted = targets(output, batch);
    const auto counts = wanted.ne(ignore_index);
    const auto own = logits.gather(2, wanted.masked_fill(counts.logical_not(), 0).unsqueeze(2));
    return logits.ge(own).sum(2).eq(1).logical_and_(counts).sum().to(at::kFloat).mul_(100);
  };
  const auto counted = [ignore_index, targets](const StepOutput& output, const Batch& batch) {
    return targets(output, batch).ne(ignore_index).sum();
  };
  return {.name = "acc", .sums = right, .counts = counted};
}

}  // namespace detail

namespace {

struct AccuracyKeys {
  int64_t k = 1;
  static const ConfigTable<AccuracyKeys>& config_table() {
    static const auto table =
        ConfigTable<AccuracyKeys>("metric accuracy").field("k", &AccuracyKeys::k, "the class must be among the k largest", at_least(1));
    return table;
  }
};

template <ClassScore kScore>
struct ScoreKeys {
  std::string average = "macro";
  int64_t label = -1;
  static const ConfigTable<ScoreKeys>& config_table() {
    static const auto table = ConfigTable<ScoreKeys>("metric " + class_score(kScore).name)
                                  .field("average", &ScoreKeys::average, "over the classes; micro: of all counts together",
                                         one_of({"macro", "micro", "weighted"}))
                                  .field("label", &ScoreKeys::label, "the score of this class alone; -1: of all", at_least(-1));
    return table;
  }
  Metric metric() const {
    if (label >= 0) return class_score(kScore, label);
    return class_score(kScore, average == "micro"      ? ScoreAverage::Micro
                               : average == "weighted" ? ScoreAverage::Weighted
                                                       : ScoreAverage::Macro);
  }
};

template <ClassScore kScore>
void add_class_score(MetricRegistry& registry, const std::string& doc) {
  registry.add<ScoreKeys<kScore>>(class_score(kScore).name, doc, [](const ScoreKeys<kScore>& keys) { return keys.metric(); });
}

struct CalibrationKeys {
  int64_t bins = 15;
  static const ConfigTable<CalibrationKeys>& config_table() {
    static const auto table =
        ConfigTable<CalibrationKeys>("metric ece").field("bins", &CalibrationKeys::bins, "equal intervals of the probability", at_least(1));
    return table;
  }
};

}  // namespace

Metric accuracy(int64_t k) {
  check(k >= 1, ErrorKind::Usage, "accuracy", "k is ", k, "; it must be at least 1");
  const auto sums = [k](const StepOutput& output, const Batch& batch) {
    const auto rank = detail::rank_of_target(output, batch);
    return detail::unmasked(rank.ge(1).logical_and_(rank.le(k)).to(at::kFloat), batch).sum().mul_(100);
  };
  return {"acc" + std::to_string(k), sums};
}

Metric multilabel_accuracy() {
  return {"acc", [](const StepOutput& output, const Batch& batch) {
            const auto logits = output.outputs.first().detach();
            check(logits.sizes() == batch.target().sizes(), ErrorKind::Usage, "metric multilabel_accuracy", "logits have shape ",
                  logits.sizes(), " and targets ", batch.target().sizes(), "; allowed: [batch, classes] for both");
            const auto right = logits.gt(0).eq(batch.target().gt(0.5)).to(at::kFloat);
            return detail::unmasked(detail::per_sample(right), batch).sum().mul_(100);
          }};
}

Metric mean_absolute_error() {
  return {"mae", [](const StepOutput& output, const Batch& batch) {
            const auto error = (output.outputs.first().detach() - batch.target().to(at::kFloat)).abs();
            return detail::unmasked(detail::per_sample(error), batch).sum();
          }};
}

Metric perplexity() {
  return {.name = "perplexity", .of_loss = [](double loss) { return std::exp(loss); }};
}

void add_builtin_metrics(MetricRegistry& registry) {
  registry.add<AccuracyKeys>("accuracy", "percentage of samples whose class is among the k largest logits",
                             [](const AccuracyKeys& keys) { return accuracy(keys.k); });
  registry.add<NoOptions>("multilabel_accuracy", "percentage of right decisions on single classes, for samples with several",
                          [](const NoOptions&) { return multilabel_accuracy(); });
  registry.add<NoOptions>("mae", "mean absolute difference between output and target",
                          [](const NoOptions&) { return mean_absolute_error(); });
  add_class_score<ClassScore::Precision>(registry, "true ones among the predicted ones, a fraction");
  add_class_score<ClassScore::Recall>(registry, "predicted ones among the true ones, a fraction");
  add_class_score<ClassScore::F1>(registry, "harmonic mean of precision and recall");
  registry.add<NoOptions>("auroc", "area under the ROC curve, mean over classes", [](const NoOptions&) { return auroc(); });
  registry.add<NoOptions>("map", "average precision, mean over classes", [](const NoOptions&) { return mean_average_precision(); });
  registry.add<CalibrationKeys>("ece", "expected calibration error, a fraction",
                                [](const CalibrationKeys& keys) { return calibration_error(keys.bins); });
  registry.add<NoOptions>("mse", "mean squared error of a regression", [](const NoOptions&) { return mean_squared_error(); });
  registry.add<NoOptions>("rmse", "root of the mean squared error", [](const NoOptions&) { return root_mean_squared_error(); });
  registry.add<NoOptions>("r2", "coefficient of determination", [](const NoOptions&) { return r2_score(); });
  registry.add<NoOptions>("perplexity", "exp of the loss, for language models", [](const NoOptions&) { return perplexity(); });
}

MetricRegistry builtin_metrics() {
  MetricRegistry registry("metric", "a program adds its own with parts.metrics.add");
  add_builtin_metrics(registry);
  return registry;
}

std::vector<Metric> make_metrics(const std::vector<PartConfig>& list, const std::string& path, const MetricRegistry& registry) {
  std::vector<Metric> out;
  for (size_t i = 0; i < list.size(); ++i) out.push_back(registry.make(list[i], path + "." + std::to_string(i)));
  return out;
}

}  // namespace npu_train
