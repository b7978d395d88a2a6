#include "eval_samples.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/csv.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/train/metric.hpp"

namespace npu_train::cli {
namespace {

constexpr int64_t kIndexPart = int64_t{1} << 20;  // an index is stored as two fp32 numbers, which hold integers only up to 2^24

// Returns [samples, 6]: two parts of the index, target, prediction, its probability, the target's probability.
at::Tensor rows_of(const StepOutput& output, const Batch& batch) {
  const auto probabilities = output.outputs.first().detach().narrow(0, 0, batch.size).to(at::kFloat).softmax(1);
  const auto target = batch.target().narrow(0, 0, batch.size);
  check(target.dim() == 1, ErrorKind::Usage, "eval", "targets have shape ", target.sizes(), "; allowed: one class for each sample");
  check(static_cast<int64_t>(batch.ids.size()) >= batch.size, ErrorKind::Usage, "eval", "the samples of this data set have no index");
  const auto index = at::tensor(std::vector<int64_t>(batch.ids.begin(), batch.ids.begin() + batch.size)).to(target.device());
  const auto [best, largest] = probabilities.max(1);
  const auto prediction = largest.masked_fill(best.isnan(), -1);
  const auto of_target = probabilities.gather(1, target.clamp_min(0).unsqueeze(1)).squeeze(1);
  return at::stack({index.floor_divide(kIndexPart).to(at::kFloat), index.remainder(kIndexPart).to(at::kFloat), target.to(at::kFloat),
                    prediction.to(at::kFloat), best, of_target},
                   1);
}

std::vector<SampleOutcome> outcomes_of(const at::Tensor& rows) {
  std::vector<SampleOutcome> out;
  const auto numbers = rows.contiguous();
  const auto* row = numbers.const_data_ptr<float>();
  for (int64_t i = 0; i < numbers.size(0); ++i, row += numbers.size(1)) {
    if (row[2] < 0) continue;
    out.push_back({.index = static_cast<int64_t>(row[0]) * kIndexPart + static_cast<int64_t>(row[1]),
                   .target = static_cast<int64_t>(row[2]),
                   .prediction = static_cast<int64_t>(row[3]),
                   .probability = row[4],
                   .of_target = row[5]});
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  return out;
}

// Counts of (target, prediction).
using Confusion = std::map<std::pair<int64_t, int64_t>, int64_t>;

struct ClassCounts {
  int64_t samples = 0, predicted = 0, right = 0;
};

ReportValue ratio(int64_t a, int64_t b) {
  return b > 0 ? number_value(static_cast<double>(a) / static_cast<double>(b), 4) : ReportValue(Json());
}

void add_classes(Report& out, const SampleOutcomes& outcomes, const std::map<int64_t, ClassCounts>& counts) {
  ReportTable table{.title = "Classes", .text_rows = 20, .all = counts.size(), .order = "by number"};
  for (const auto& [label, c] : counts)
    table.add({both("class", outcomes.class_name(label)), both("samples", c.samples), both("predicted", c.predicted),
               both("right", c.right), both("precision", ratio(c.right, c.predicted)), both("recall", ratio(c.right, c.samples)),
               both("f1", ratio(2 * c.right, c.samples + c.predicted))});
  out.table("classes", std::move(table));
}

void add_confusions(Report& out, const SampleOutcomes& outcomes, const Confusion& confusion) {
  std::vector<std::pair<std::pair<int64_t, int64_t>, int64_t>> wrong;
  for (const auto& item : confusion)
    if (item.first.first != item.first.second) wrong.push_back(item);
  std::stable_sort(wrong.begin(), wrong.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  ReportTable table{.title = "Confusions", .text_rows = 10, .all = wrong.size(), .order = "most frequent first"};
  for (const auto& [pair, count] : wrong)
    table.add(
        {both("target", outcomes.class_name(pair.first)), both("prediction", outcomes.class_name(pair.second)), both("samples", count)});
  out.table("confusions", std::move(table));
}

void add_matrix(Report& out, const SampleOutcomes& outcomes, const std::map<int64_t, ClassCounts>& counts, const Confusion& confusion) {
  constexpr size_t kMostClasses = 50;
  if (counts.size() > kMostClasses) return;
  ReportTable table{.title = "Confusion matrix: targets in rows, predictions in columns"};
  for (const auto& [target, unused] : counts) {
    std::vector<ReportField> row = {shown("target", outcomes.class_name(target))};
    for (const auto& [prediction, also_unused] : counts) {
      const auto found = confusion.find({target, prediction});
      const auto tone = target == prediction ? Tone::Good : found == confusion.end() ? Tone::Plain : Tone::Warn;
      row.push_back(shown(outcomes.class_name(prediction), toned(found == confusion.end() ? int64_t{0} : found->second, tone)));
    }
    table.add(std::move(row));
  }
  out.table("", std::move(table), ReportIn::Page);
}

void add_worst(Report& out, const SampleOutcomes& outcomes) {
  constexpr size_t kShown = 50;
  std::vector<const SampleOutcome*> order;
  for (const auto& s : outcomes.samples) order.push_back(&s);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::isnan(a->of_target) || std::isnan(b->of_target) ? std::isnan(a->of_target) && !std::isnan(b->of_target)
                                                                : a->of_target < b->of_target;
  });
  order.resize(std::min(order.size(), kShown));
  ReportTable table{.title = "Samples whose right class got the least probability",
                    .text_rows = 10,
                    .all = outcomes.samples.size(),
                    .order = "worst first"};
  for (const auto* s : order)
    table.add({both("sample", s->index), both("file", outcomes.data == nullptr ? "" : outcomes.data->where(s->index)),
               both("target", outcomes.class_name(s->target)), both("prediction", outcomes.class_name(s->prediction)),
               both("probability", number_value(s->probability, 4)),
               both("probability_of_target", "of target", number_value(s->of_target, 4))});
  out.table("worst", std::move(table));
}

}  // namespace

std::string SampleOutcomes::class_name(int64_t label) const {
  if (label < 0) return "(not finite)";
  return label < static_cast<int64_t>(classes.size()) ? classes[static_cast<size_t>(label)] : std::to_string(label);
}

std::shared_ptr<SampleOutcomes> collect_outcomes(RunConfig& config, Parts& parts, size_t classes) {
  check(config.task.name == "classifier" || config.task.name.empty(), ErrorKind::Usage, "eval",
        "--predictions and --html need the task "
        "classifier, whose samples have a class; the task is ",
        config.task.name);
  auto out = std::make_shared<SampleOutcomes>();
  parts.metrics.add<NoOptions>(kOutcomesMetric, "the answer for each sample", [out](const NoOptions&) {
    return Metric{.name = kOutcomesMetric, .rows = rows_of, .of_rows = [out](const at::Tensor& rows) {
                    out->samples = outcomes_of(rows);
                    return 0.0;
                  }};
  });
  const auto* given = config.task.options.find("metrics");
  auto metrics = given != nullptr && given->is_list() ? *given : ConfigNode::list({});
  if (metrics.items().empty()) {  // default metrics of a classifier that names none
    metrics.push_back(ConfigNode{{"name", "accuracy"}, {"k", 1}});
    if (classes == 0 || classes > 5) metrics.push_back(ConfigNode{{"name", "accuracy"}, {"k", 5}});
  }
  metrics.push_back(ConfigNode(kOutcomesMetric));
  config.task.options.set("metrics", std::move(metrics));
  return out;
}

void write_outcomes(const std::string& path, const SampleOutcomes& outcomes) {
  auto text = csv_row({"sample", "file", "target", "prediction", "probability", "probability_of_target"});
  for (const auto& s : outcomes.samples)
    text += csv_row({std::to_string(s.index), outcomes.data == nullptr ? "" : outcomes.data->where(s.index), outcomes.class_name(s.target),
                     outcomes.class_name(s.prediction), shortest(s.probability), shortest(s.of_target)});
  write_file_atomic(path, text);
}

void add_outcomes(Report& out, const SampleOutcomes& outcomes) {
  std::map<int64_t, ClassCounts> counts;
  Confusion confusion;
  for (const auto& s : outcomes.samples) {
    ++counts[s.target].samples;
    if (s.prediction >= 0) ++counts[s.prediction].predicted;
    if (s.target == s.prediction) ++counts[s.target].right;
    ++confusion[{s.target, s.prediction}];
  }
  add_classes(out, outcomes, counts);
  add_confusions(out, outcomes, confusion);
  add_matrix(out, outcomes, counts, confusion);
  add_worst(out, outcomes);
}

}  // namespace npu_train::cli
