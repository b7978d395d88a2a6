#include "tools/align/compare_csv_rules.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include "npu_train/core/text.hpp"

namespace npu_train::detail {
namespace {

using Kind = ItemComparison::Kind;

constexpr const char* kWarning = "warning";
constexpr const char* kError = "error";

bool one_sided(const ItemComparison& item) { return item.a.empty() || item.b.empty(); }
bool is_output(const ItemComparison& item) { return item.a.find(".output.") != std::string::npos; }

// The values of an operator that msprobe judges: all, only outputs, or none. It judges none if the tensors are not yet initialised.
enum class JudgedRow { All, Outputs, Nothing };
JudgedRow judged_of(const std::string& call) {
  static const std::set<std::string> nothing = {
      "empty", "empty_like", "numpy", "to", "__setitem__", "empty_strided", "empty_with_format", "new_empty", "new_empty_strided"};
  static const std::set<std::string> outputs = {"_reduce_scatter_base", "_all_gather_base", "all_to_all_single", "batch_isend_irecv"};
  const auto begin = call.find('.');
  if (begin == std::string::npos) return JudgedRow::All;
  const auto name = call.substr(begin + 1, call.find('.', begin + 1) - begin - 1);
  return nothing.count(name) != 0 ? JudgedRow::Nothing : outputs.count(name) != 0 ? JudgedRow::Outputs : JudgedRow::All;
}

class Rules {
 public:
  explicit Rules(const std::vector<Row>& rows) : out_(rows.size()) {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (one_sided(*rows[i].item)) out_[i].level = "N/A";
      (is_output(*rows[i].item) ? outputs_ : inputs_).push_back({rows[i].item, &out_[i]});
    }
    judged_ = rows.empty() || inputs_.empty() ? JudgedRow::All : judged_of(inputs_.front().item->a);
  }

  std::vector<CsvResult> run(CsvMode mode) {
    for (const auto& row : inputs_)
      if (judged_ == JudgedRow::All) single(row, mode, /*input=*/true);
    for (const auto& row : outputs_)
      if (judged_ != JudgedRow::Nothing) single(row, mode, /*input=*/false);
    if (judged_ == JudgedRow::All && mode == CsvMode::Tensor) values();
    if (judged_ == JudgedRow::All && mode == CsvMode::Statistics) statistics();
    return std::move(out_);
  }

 private:
  struct Judgement {
    const ItemComparison* item;
    CsvResult* result;
  };

  static void say(const Judgement& row, const char* level, const std::string& message) {
    if (one_sided(*row.item)) return;
    if (row.result->level != kError) row.result->level = level;
    row.result->messages.push_back(std::string(level) + ": " + message);
  }

  // Rules for a single row.
  static void single(const Judgement& row, CsvMode mode, bool input) {
    const auto &a = row.item->item_a, &b = row.item->item_b;
    if (input && !a.is_tensor() && !b.is_tensor() && a.value != b.value) say(row, kError, "different plain argument");
    if (mode == CsvMode::Checksum) {
      if (a.crc == b.crc) return;
      const bool both = !a.crc.empty() && !b.crc.empty();
      return both ? say(row, kError, "different CRC-32") : say(row, kWarning, "CRC-32 on one side only");
    }
    const auto finite = [](const DumpItem& i) {
      return std::isfinite(statistic_of(i, Statistic::Max).value_or(0)) && std::isfinite(statistic_of(i, Statistic::Min).value_or(0));
    };
    if (!finite(a) && finite(b)) say(row, kError, "max or min is not finite on the NPU side");
    if (a.is_tensor() && b.is_tensor() && a.requires_grad != b.requires_grad) say(row, kError, "different requires_grad");
    if (a.dtype != b.dtype) say(row, kError, "different dtype");
    if (a.shape != b.shape) say(row, kError, "different shape");
  }

  // Returns the smallest value over the rows of tensors that are not scalars; 1 if all are larger.
  template <class Fn>
  static double least(const std::vector<Judgement>& rows, Fn value) {
    double out = 1;
    for (const auto& row : rows)
      if (row.item->kind == Kind::Tensor && !row.item->item_a.shape.empty()) out = std::fmin(out, value(row.item->metrics));
    return out;
  }

  void values() {
    if (outputs_.empty()) return;
    const auto thousandth = [](const PairMetrics& m) { return m.one_thousandth; };
    const auto cosine = [](const PairMetrics& m) { return m.cosine; };
    if (least(inputs_, thousandth) > 0.9 && least(outputs_, thousandth) < 0.1)
      say(outputs_.front(), kError, "more than 90 % of the inputs within a thousandth, less than 10 % of the outputs");
    if (const double in = least(inputs_, cosine); in > 0.9 && in - least(outputs_, cosine) > 0.1)
      say(outputs_.front(), kWarning, "the cosine falls by more than 0.1 from inputs to outputs");
  }

  static double norm_error(const ItemComparison& item) { return relative_of(item, Statistic::Norm).value_or(0); }

  void statistics() {
    double in = 0, out = 0;
    for (const auto& row : inputs_) in = std::fmax(in, norm_error(*row.item));
    for (const auto& row : outputs_) {
      out = std::fmax(out, norm_error(*row.item));
      if (in < 0.1 && norm_error(*row.item) > 0.5)
        say(row, kError, "the norm differs by more than 50 %, those of the inputs by less than 10 %");
    }
    if (!outputs_.empty() && (in == 0 ? out > 0.1 : out > 10 * in))
      say(outputs_.front(), kWarning, "the norms of the outputs differ 10 times as much as those of the inputs");
  }

  std::vector<CsvResult> out_;
  std::vector<Judgement> inputs_, outputs_;
  JudgedRow judged_ = JudgedRow::All;
};

}  // namespace

std::optional<double> statistic_of(const DumpItem& item, Statistic which) {
  if (!item.is_tensor()) return decimal_number(item.value);
  switch (which) {
    case Statistic::Max:
      return item.max;
    case Statistic::Min:
      return item.min;
    case Statistic::Mean:
      return item.mean;
    case Statistic::Norm:
      break;
  }
  return item.norm;
}

std::optional<double> relative_of(const ItemComparison& item, Statistic which) {
  const auto a = statistic_of(item.item_a, which), b = statistic_of(item.item_b, which);
  if (!a || !b) return std::nullopt;
  if (*a == *b) return 0;
  return *b == 0 ? std::nullopt : std::optional(std::abs((*a - *b) / *b));
}

std::vector<CsvResult> results_of(const std::vector<Row>& rows, CsvMode mode) { return Rules(rows).run(mode); }

}  // namespace npu_train::detail
