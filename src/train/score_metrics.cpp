// Metrics that are not means over samples: scores of classification and regression over a whole validation.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/train/metric.hpp"

namespace npu_train {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Returns the first output and the targets of a batch, without padded samples.
std::pair<at::Tensor, at::Tensor> real_samples(const StepOutput& output, const Batch& batch) {
  const auto keep = [&](const at::Tensor& all) { return all.narrow(0, 0, batch.size); };
  return {keep(output.outputs.first().detach()).to(at::kFloat), keep(batch.target())};
}

// Returns the truth of each class, 0 or 1, [samples, classes].
at::Tensor truth_of(const at::Tensor& target, const at::Tensor& logits) {
  check(logits.dim() == 2 && (target.dim() == 1 || target.sizes() == logits.sizes()), ErrorKind::Usage, "metric", "logits have shape ",
        logits.sizes(), " and targets ", target.sizes(), "; allowed: logits [batch, classes] with targets [batch] or [batch, classes]");
  if (target.dim() == 2) return target.gt(0.5).to(at::kFloat);
  check(target.scalar_type() == at::kLong, ErrorKind::Usage, "metric", "targets [batch] are ", target.scalar_type(),
        "; allowed: int64, the number of the class");
  const auto ignored = target.lt(0).unsqueeze(1);
  return at::zeros_like(logits).scatter_(1, target.clamp_min(0).unsqueeze(1), 1).masked_fill_(ignored, 0);
}

// Returns the decision on each class, then the truth: [samples, 2 classes].
at::Tensor decisions_and_truth(const StepOutput& output, const Batch& batch) {
  const auto [logits, target] = real_samples(output, batch);
  const auto truth = truth_of(target, logits);
  const auto decided = target.dim() == 2 ? logits.gt(0).to(at::kFloat) : at::zeros_like(logits).scatter_(1, logits.argmax(1, true), 1);
  return at::cat({decided, truth}, 1);
}

// Returns the score of each class, then the truth: [samples, 2 classes]. Scores must order the samples of a class. For targets [batch] they
// are probabilities, because logits are comparable only within a sample.
at::Tensor scores_and_truth(const StepOutput& output, const Batch& batch) {
  const auto [logits, target] = real_samples(output, batch);
  const auto truth = truth_of(target, logits);
  return at::cat({target.dim() == 1 ? logits.softmax(1) : logits, truth}, 1);
}

// Counts for one class, or for all together: right decisions, decisions for the class, and samples of the class.
struct Counts {
  double right = 0, decided = 0, true_ones = 0;
  Counts& operator+=(const Counts& other) {
    right += other.right;
    decided += other.decided;
    true_ones += other.true_ones;
    return *this;
  }
  double score(ClassScore score) const {
    const auto ratio = [](double a, double b) { return b > 0 ? a / b : 0; };
    if (score == ClassScore::Precision) return ratio(right, decided);
    if (score == ClassScore::Recall) return ratio(right, true_ones);
    return ratio(2 * right, decided + true_ones);
  }
};

std::vector<Counts> counts_of(const at::Tensor& rows) {
  const auto halves = rows.to(at::kDouble).chunk(2, 1);
  const auto right = (halves[0] * halves[1]).sum(0), decided = halves[0].sum(0), true_ones = halves[1].sum(0);
  std::vector<Counts> out;
  for (int64_t c = 0; c < right.size(0); ++c)
    out.push_back({right[c].item<double>(), decided[c].item<double>(), true_ones[c].item<double>()});
  return out;
}

double averaged(const std::vector<Counts>& classes, ClassScore score, ScoreAverage average) {
  Counts all;
  for (const auto& one : classes) all += one;
  if (average == ScoreAverage::Micro) return all.score(score);
  double sum = 0, weight = 0;
  for (const auto& one : classes) {
    const double w = average == ScoreAverage::Weighted ? one.true_ones : (one.decided + one.true_ones > 0 ? 1 : 0);
    sum += w * one.score(score);
    weight += w;
  }
  return weight > 0 ? sum / weight : 0;
}

const char* name_of(ClassScore score) {
  return score == ClassScore::Precision ? "precision" : score == ClassScore::Recall ? "recall" : "f1";
}

using Scored = std::vector<std::pair<float, bool>>;  // score and truth of each sample

// Calls `each` once for every distinct score, from the largest, with the numbers of true and false samples that have it.
void for_each_threshold(Scored samples, const std::function<void(double right, double wrong)>& each) {
  std::sort(samples.begin(), samples.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = 0; i < samples.size();) {
    double right = 0, wrong = 0;
    for (const float score = samples[i].first; i < samples.size() && samples[i].first == score; ++i) ++(samples[i].second ? right : wrong);
    each(right, wrong);
  }
}

double area_under_roc(const Scored& samples) {
  double right = 0, wrong = 0, area = 0;
  for_each_threshold(samples, [&](double more_right, double more_wrong) {
    area += more_wrong * (right + more_right / 2);
    right += more_right;
    wrong += more_wrong;
  });
  return right > 0 && wrong > 0 ? area / (right * wrong) : kNan;
}

double average_precision(const Scored& samples) {
  double right = 0, all = 0, sum = 0;
  for_each_threshold(samples, [&](double more_right, double more_wrong) {
    right += more_right;
    all += more_right + more_wrong;
    sum += more_right * right / all;
  });
  return right > 0 ? sum / right : kNan;
}

// Returns the mean over the classes for which `of_class` is a number. NaN if a logit is NaN.
double mean_over_classes(const at::Tensor& rows, double (*of_class)(const Scored&)) {
  const auto classes = rows.size(1) / 2;
  if (rows.isnan().any().item<bool>()) return kNan;
  double sum = 0;
  int64_t counted = 0;
  for (int64_t c = 0; c < classes; ++c) {
    const auto scores = rows.select(1, c).contiguous(), truth = rows.select(1, classes + c).contiguous();
    Scored samples;
    for (int64_t i = 0; i < rows.size(0); ++i)
      samples.emplace_back(scores.const_data_ptr<float>()[i], truth.const_data_ptr<float>()[i] > 0);
    const double value = of_class(samples);
    if (std::isnan(value)) continue;
    sum += value;
    ++counted;
  }
  return counted > 0 ? sum / static_cast<double>(counted) : kNan;
}

at::Tensor output_and_target(const StepOutput& output, const Batch& batch) {
  const auto [values, target] = real_samples(output, batch);
  check(values.numel() == target.numel(), ErrorKind::Usage, "metric", "outputs have shape ", values.sizes(), " and targets ",
        target.sizes(), "; the metrics of a regression need equal shapes");
  return at::cat({values.reshape({batch.size, -1}), target.to(at::kFloat).reshape({batch.size, -1})}, 1);
}

}  // namespace

Metric class_score(ClassScore score, ScoreAverage average) {
  const char* suffix = average == ScoreAverage::Micro ? "_micro" : average == ScoreAverage::Weighted ? "_weighted" : "";
  return {.name = name_of(score) + std::string(suffix), .rows = decisions_and_truth, .of_rows = [score, average](const at::Tensor& rows) {
            return averaged(counts_of(rows), score, average);
          }};
}

Metric class_score(ClassScore score, int64_t label) {
  check(label >= 0, ErrorKind::Usage, "metric", "the label is ", label, "; allowed: at least 0");
  return {.name = str_cat(name_of(score), "_", label), .rows = decisions_and_truth, .of_rows = [score, label](const at::Tensor& rows) {
            const auto classes = counts_of(rows);
            check(label < static_cast<int64_t>(classes.size()), ErrorKind::Usage, name_of(score), "the label is ", label,
                  ", and the model has ", classes.size(), " classes; allowed: 0 to ", classes.size() - 1);
            return classes[static_cast<size_t>(label)].score(score);
          }};
}

Metric auroc() {
  return {
      .name = "auroc", .rows = scores_and_truth, .of_rows = [](const at::Tensor& rows) { return mean_over_classes(rows, area_under_roc); }};
}

Metric mean_average_precision() {
  return {.name = "map", .rows = scores_and_truth, .of_rows = [](const at::Tensor& rows) {
            return mean_over_classes(rows, average_precision);
          }};
}

Metric calibration_error(int64_t bins) {
  check(bins >= 1, ErrorKind::Usage, "ece", "bins is ", bins, "; allowed: at least 1");
  const auto rows = [](const StepOutput& output, const Batch& batch) {
    const auto [logits, target] = real_samples(output, batch);
    check(target.dim() == 1, ErrorKind::Usage, "ece", "targets have shape ", target.sizes(), "; allowed: [batch]");
    const auto [confidence, predicted] = logits.softmax(1).max(1);
    return at::stack({confidence, predicted.eq(target).to(at::kFloat)}, 1);
  };
  const auto of_rows = [bins](const at::Tensor& all) {
    std::vector<double> gap(static_cast<size_t>(bins));  // for each bin, the sum of confidence minus correctness
    for (int64_t i = 0; i < all.size(0); ++i) {
      const double confidence = all[i][0].item<double>(), right = all[i][1].item<double>();
      if (std::isnan(confidence)) return kNan;
      // Bin k is the interval (k / bins, (k + 1) / bins].
      const auto bin = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(confidence * static_cast<double>(bins))) - 1, 0, bins - 1);
      gap[static_cast<size_t>(bin)] += confidence - right;
    }
    double sum = 0;
    for (const double one : gap) sum += std::abs(one);
    return sum / static_cast<double>(all.size(0));
  };
  return {.name = "ece", .rows = rows, .of_rows = of_rows};
}

Metric mean_squared_error() {
  return {"mse", [](const StepOutput& output, const Batch& batch) {
            const auto rows = output_and_target(output, batch).chunk(2, 1);
            return (rows[0] - rows[1]).square().mean(1).sum();
          }};
}

Metric root_mean_squared_error() {
  return {.name = "rmse", .rows = output_and_target, .of_rows = [](const at::Tensor& rows) {
            const auto halves = rows.to(at::kDouble).chunk(2, 1);
            return std::sqrt((halves[0] - halves[1]).square().mean().item<double>());
          }};
}

Metric r2_score() {
  return {.name = "r2", .rows = output_and_target, .of_rows = [](const at::Tensor& rows) {
            const auto halves = rows.to(at::kDouble).chunk(2, 1);
            const auto left = (halves[1] - halves[0]).square().sum(0), spread = (halves[1] - halves[1].mean(0)).square().sum(0);
            const auto constant = at::where(left.eq(0), at::ones_like(left), at::zeros_like(left));
            return at::where(spread.gt(0), 1 - left / spread, constant).mean().item<double>();
          }};
}

}  // namespace npu_train
