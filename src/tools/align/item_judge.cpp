#include <algorithm>
#include <cmath>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/align/dumper.hpp"
#include "npu_train/tools/report/report.hpp"
#include "tools/align/compare_parts.hpp"
#include "tools/align/value_files.hpp"

namespace npu_train {
namespace detail {
namespace {

constexpr double kSums = 1e-6;  // effect of the summation order in fp32 on statistics, relative to the largest value
constexpr double kNever = std::numeric_limits<double>::infinity();

std::string shape_cause(const DumpItem& a, const DumpItem& b) {
  auto sorted_a = a.shape, sorted_b = b.shape;
  std::sort(sorted_a.begin(), sorted_a.end());
  std::sort(sorted_b.begin(), sorted_b.end());
  std::string out = str_cat("shapes ", at::IntArrayRef(a.shape), " and ", at::IntArrayRef(b.shape), ": ");
  if (sorted_a == sorted_b) return out + "the same sizes in a different order: a transposed or permuted layout";
  if (numel_of(a.shape) == numel_of(b.shape)) return out + "equal numbers of elements with different shapes";
  if (a.shape.size() == b.shape.size() && !a.shape.empty() && a.shape[0] != b.shape[0] &&
      std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1))
    return out + "a different batch size (data.batch_size, or a last batch that is not full)";
  return out + "a different network or image size";
}

// Whether TensorFile can read the values. For other dtypes, only statistics and checksums are compared.
bool has_readable_values(const DumpItem& item) {
  static constexpr const char* unread[] = {"complex", "float8", "uint16", "uint32", "uint64"};
  const auto dtype = to_lower(item.dtype);
  return !item.data_name.empty() &&
         std::none_of(std::begin(unread), std::end(unread), [&](const char* word) { return dtype.find(word) != std::string::npos; });
}

// Whether the files of both sides contain the same elements. If not, the statistics are compared, since they cover all elements.
bool same_sample(const DumpItem& a, const DumpItem& b, const DumpStep& step_a, const DumpStep& step_b) {
  if (a.sampled == 0 && b.sampled == 0) return true;
  if (a.sampled != b.sampled) return false;
  const auto equal = [&](const char* fact) {
    const auto x = fact_of(step_a, fact), y = fact_of(step_b, fact);
    return x.empty() || y.empty() || x == y;
  };
  return equal("seed") && equal("sample_elements");
}

// Returns the factor that a dumped value contains: the loss scale for gradients of the backward pass, 1 for other values.
double loss_scale_of(const DumpStep& step, const std::string& direction, const DumpItem& item) {
  if (direction != "backward" || item.unscaled) return 1;
  const auto found = step.facts.find("loss_scale");
  if (found == step.facts.end()) return 1;
  const double scale = decimal_number(found->second).value_or(0);
  return scale > 0 && std::isfinite(scale) ? scale : 1;
}

double relative(double a, double b, double scale) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double d = std::abs(a - b) / (scale > 0 ? scale : std::max(std::abs(a), std::abs(b)));
  return std::isnan(d) ? kNever : d;
}

bool is_number(const std::string& text, double& out) {
  const auto number = decimal_number(text);
  out = number.value_or(0);
  return number.has_value();
}

}  // namespace

int fineness(const std::string& dtype) {
  static const std::vector<std::string> order = {"torch.bfloat16", "torch.float16", "torch.float32", "torch.float64"};
  const auto at = std::find(order.begin(), order.end(), dtype);
  return at == order.end() ? 4 : static_cast<int>(at - order.begin());
}

std::string coarser_dtype(const std::string& a, const std::string& b) { return fineness(a) <= fineness(b) ? a : b; }

double noise_of(const std::string& dtype_a, const std::string& dtype_b) {
  switch (fineness(coarser_dtype(dtype_a, dtype_b))) {
    case 0:
      return 8e-3;
    case 1:
      return 2e-3;
    case 2:
      return 4e-6;
    default:
      return 1e-13;
  }
}

std::string fact_of(const DumpStep& step, const std::string& name) {
  const auto found = step.facts.find(name);
  return found == step.facts.end() ? "" : found->second;
}

bool is_moved(const ItemComparison& item) { return item.a.ends_with(".running_mean") || item.a.ends_with(".running_var"); }

// Returns a reduced error for a running mean that is small compared with the spread of the values, since the spread limits how exact a mean
// can be.
double moved_error_of(const ItemComparison& item, const CallComparison& call) {
  if (!std::isfinite(item.error) || !item.a.ends_with(".running_mean")) return item.error;
  const auto spread = std::find_if(call.items.begin(), call.items.end(), [](const auto& i) { return i.b.ends_with(".running_var"); });
  if (spread == call.items.end() || !spread->item_b.mean || !item.item_b.norm) return item.error;
  const double all = std::sqrt(*spread->item_b.mean * static_cast<double>(std::max<int64_t>(1, numel_of(item.item_b.shape))));
  return item.error * std::min(1.0, all > 0 ? *item.item_b.norm / all : 1.0);
}

double statistics_error(const DumpItem& a, const DumpItem& b) {
  if (!a.max || !b.max) return 0;
  const double largest = std::max(std::abs(b.max.value_or(0)), std::abs(b.min.value_or(0)));
  double out = std::max(relative(*a.max, *b.max, largest), relative(a.min.value_or(0), b.min.value_or(0), largest));
  if (a.norm && b.norm) {
    out = std::max(out, relative(*a.norm, *b.norm, *b.norm));
    const auto n = numel_of(b.shape);
    if (a.mean && b.mean && n > 0) out = std::max(out, relative(*a.mean, *b.mean, *b.norm / std::sqrt(static_cast<double>(n))));
  }
  return out;
}

namespace {

// Whether the dump has finite statistics, which cover the elements that a sample omits. Statistics of a value with NaN or inf, and
// checksums, do not suffice.
bool has_all_statistics(const DumpItem& item) {
  const auto known = [](const std::optional<double>& v) { return v && std::isfinite(*v); };
  return known(item.max) && known(item.min) && known(item.mean) && known(item.norm);
}

// Returns the error in a sample, relative to the norm of the complete value, since a sample of a sparse value may contain only zeros.
double error_of_sample(const PairMetrics& m, const DumpItem& b) {
  const double whole = b.norm.value_or(0);
  if (m.nonfinite_mismatch > 0) return kNever;
  const double share = static_cast<double>(m.elements) / static_cast<double>(std::max<int64_t>(1, numel_of(b.shape)));
  return m.euclidean == 0 ? 0 : whole > 0 ? m.euclidean / std::sqrt(share) / whole : 1;
}

// Returns the error of values relative to B. If only B is zero, the error is relative to A, as for statistics.
double error_of(const PairMetrics& m) {
  if (m.nonfinite_mismatch > 0 || std::isnan(m.relative_norm)) return kNever;
  return std::isinf(m.relative_norm) ? m.euclidean / m.norm_a : m.relative_norm;
}

// Returns the largest difference between elements of A and B, as far as it can be inferred from the statistics.
double apart_in_statistics(const ItemComparison& item, double largest_b, const Tolerance& t) {
  const auto apart = [](const std::optional<double>& a, const std::optional<double>& b) {
    return a && b && !(*a == *b) && !(std::isnan(*a) && std::isnan(*b)) ? std::abs(*a - *b) : 0;
  };
  const auto &a = item.item_a, &b = item.item_b;
  // the norm may have the same relative error as the largest element
  const double norm = largest_b > 0 && b.norm && *b.norm > 0 ? apart(a.norm, b.norm) / *b.norm * largest_b : apart(a.norm, b.norm);
  const bool counted_exactly = t.atol == 0 && t.rtol == 0;  // the values are integers, but their sums are rounded
  const double sums = std::max(apart(a.mean, b.mean), norm);
  return std::max({apart(a.max, b.max), apart(a.min, b.min), counted_exactly && sums <= kSums * largest_b ? 0 : sums});
}

// Returns the coarsest dtype that at least a quarter of the outputs have, so that a single exceptional layer does not decide.
std::string dtype_of_run(const DumpStep& step) {
  std::map<std::string, int64_t> counts;
  int64_t all = 0;
  const auto count_items = [&](bool of_forward) {
    for (const auto& call : step.calls)
      for (const auto& item : call.items)
        if ((call.direction == "forward") == of_forward && !call.layer.starts_with("optimizer") && item.side == "output" &&
            fineness(item.dtype) < 4)
          ++counts[item.dtype], ++all;
  };
  count_items(true);
  if (all == 0) count_items(false);  // the dump contains only gradients
  std::string out = "torch.float64";
  for (const auto& [dtype, n] : counts)
    if (n * 4 >= all && fineness(dtype) < fineness(out)) out = dtype;
  return out;
}

}  // namespace

ItemJudge::ItemJudge(const DumpStep& a, const DumpStep& b, const CompareOptions& options)
    : a_(a), b_(b), options_(options), dtype_a_(dtype_of_run(a)), dtype_b_(dtype_of_run(b)), run_dtype_(coarser_dtype(dtype_a_, dtype_b_)) {
  for (const auto& call : b.calls)
    for (const auto& item : call.items)
      if (item.max && item.side != "parameters" && call.direction != "forward") {
        const double scale = loss_scale_of(b, call.direction, item);
        const double largest = std::max(std::abs(*item.max), std::abs(item.min.value_or(0))) / scale;
        if (std::isfinite(largest)) scales_[call.direction] = std::max(scales_[call.direction], largest);
      }
}

int64_t ItemJudge::compare(ItemComparison& item, const std::string& direction) const {
  using Kind = ItemComparison::Kind;
  const auto &a = item.item_a, &b = item.item_b;
  const double scale_a = loss_scale_of(a_, direction, a), scale_b = loss_scale_of(b_, direction, b);
  if (a.is_tensor() != b.is_tensor()) {
    item.kind = Kind::Unmatched;
    item.message = a.is_tensor() ? "a tensor in A, " + b.value + " in B" : a.value + " in A, a tensor in B";
    item.error = kNever;
    return 0;
  }
  if (!a.is_tensor()) {
    double x = 0, y = 0;
    const bool numbers = is_number(a.value, x) && is_number(b.value, y);
    item.kind = Kind::Value;
    item.error = a.value == b.value || item.a.ends_with(".loss_scale") ? 0 : numbers ? relative(x, y, 0) : kNever;
    return 0;
  }
  const bool turned = item.transposed && a.shape == std::vector<int64_t>(b.shape.rbegin(), b.shape.rend());
  if (a.shape != b.shape && !turned) {
    item.kind = Kind::Unmatched;
    item.message = shape_cause(a, b);
    item.error = kNever;
    return 0;
  }
  if (!turned && has_readable_values(a) && has_readable_values(b) && same_sample(a, b, a_, b_)) {
    item.kind = Kind::Tensor;
    const auto bytes = compare_files(item, scale_a, scale_b);
    if (item.kind == Kind::Tensor || !a.max || !b.max) return bytes;
    const auto why = std::move(item.message);  // the values cannot be read; the statistics can
    item.kind = Kind::Statistics;
    compare_statistics(item, scale_a, scale_b);
    item.message = why;
    return bytes;
  }
  if (!turned && !a.crc.empty() && !b.crc.empty()) {
    item.kind = Kind::Checksum;
    item.error = a.crc == b.crc ? 0 : 1;
    return 0;
  }
  item.kind = Kind::Statistics;
  const bool none = !a.max && !b.max, one = a.max.has_value() != b.max.has_value();
  if (one || (none && numel_of(a.shape) > 0 && a.dtype.find("bool") == std::string::npos)) {
    item.kind = Kind::NotCompared;
    item.message = "no common kind of data: both sides need values, statistics or checksums";
    return 0;
  }
  compare_statistics(item, scale_a, scale_b);
  return 0;
}

void ItemJudge::compare_statistics(ItemComparison& item, double scale_a, double scale_b) const {
  const auto scaled = [](DumpItem& i, double scale) {
    for (auto* v : {&i.max, &i.min, &i.mean, &i.norm})
      if (*v) **v /= scale;
  };
  scaled(item.item_a, scale_a);
  scaled(item.item_b, scale_b);
  item.error = statistics_error(item.item_a, item.item_b);
}

int64_t ItemJudge::compare_files(ItemComparison& item, double scale_a, double scale_b) const {
  try {
    const bool sample = has_all_statistics(item.item_a) && has_all_statistics(item.item_b);
    auto pair = compare_value_files({a_.file_of(item.item_a), item.item_a, scale_a}, {b_.file_of(item.item_b), item.item_b, scale_b},
                                    sample ? options_.sample_elements : 1, static_cast<uint64_t>(options_.seed));
    item.metrics = std::move(pair.metrics);
    item.partial = !pair.whole;
    if (item.partial) {
      compare_statistics(item, scale_a, scale_b);
      item.error = std::max(item.error, error_of_sample(item.metrics, item.item_b));
      return pair.bytes;
    }
    if (scale_a != 1 || scale_b != 1) compare_statistics_of(item);
    item.error = error_of(item.metrics);
    return pair.bytes;
  } catch (const Error& e) {
    item.kind = ItemComparison::Kind::NotCompared;
    item.message = e.what();
    item.failed = item.unreadable = true;
    return 0;
  }
}

// For the table, replaces the statistics of gradients that contain a loss scale by the statistics of the values that were compared.
void ItemJudge::compare_statistics_of(ItemComparison& item) {
  const auto& m = item.metrics;
  item.item_a.max = m.max_a, item.item_a.min = m.min_a, item.item_a.mean = m.mean_a, item.item_a.norm = m.norm_a;
  item.item_b.max = m.max_b, item.item_b.min = m.min_b, item.item_b.mean = m.mean_b, item.item_b.norm = m.norm_b;
}

Tolerance ItemJudge::tolerance_of(const ItemComparison& item, const CallComparison& call) const {
  auto dtype = coarser_dtype(item.item_a.dtype, item.item_b.dtype);
  const bool computed = item.side != "parameters" || is_moved(item);  // weights are stored, running statistics are computed
  if (computed && fineness(dtype) < 4) dtype = coarser_dtype(dtype, run_dtype_);
  auto out = default_tolerance(dtype, dtype);
  out.atol = options_.atol.value_or(out.atol);
  out.rtol = options_.rtol.value_or(out.rtol);
  for (const auto& [pattern, tolerance] : options_.layer_tolerance)
    if (call_matches(call.a, pattern)) out = tolerance;
  return out;
}

void ItemJudge::judge(ItemComparison& item, const CallComparison& call) const {
  if (!item.unreadable || item.kind != ItemComparison::Kind::Statistics) return judge_readable(item, call);
  const auto why = std::exchange(item.message, "");
  item.failed = false;
  judge_readable(item, call);
  item.unreadable = !item.failed;  // if the statistics have failed, they show that the runs differ
  item.failed = true;
  item.message = why + (item.message.empty() ? "" : "; its statistics: " + item.message);
}

void ItemJudge::judge_readable(ItemComparison& item, const CallComparison& call) const {
  using Kind = ItemComparison::Kind;
  if (item.kind == Kind::OneSided) return;
  if (item.kind == Kind::NotCompared) return;
  const bool all_noise = item.kind == Kind::Statistics || item.metrics.elements == 0;
  if (item.noise_elements > 0 && all_noise) return;
  if (item.kind == Kind::Unmatched || !item.message.empty()) {
    item.failed = true;
    return;
  }
  if (options_.exact || item.kind == Kind::Checksum) {
    item.failed = item.error > 0 || (item.kind == Kind::Tensor && !item.metrics.identical);
    if (item.failed) item.message = item.kind == Kind::Checksum ? "different bytes" : "different bits";
    return;
  }
  if (item.kind == Kind::Value) {
    item.failed = item.error > 1e-6;
    constexpr size_t kMostShown = 100;
    if (item.failed) item.message = item.item_a.value.substr(0, kMostShown) + " and " + item.item_b.value.substr(0, kMostShown);
    return;
  }
  const auto t = tolerance_of(item, call);
  const auto scale = scales_.find(call.direction);
  const bool by_values = item.kind == Kind::Tensor, by_statistics = !by_values || item.partial;
  double largest_b = by_values ? std::max(std::abs(item.metrics.max_b), std::abs(item.metrics.min_b)) : 0;
  if (by_statistics) largest_b = std::max({largest_b, std::abs(item.item_b.max.value_or(0)), std::abs(item.item_b.min.value_or(0))});
  // If values are masked with -inf, the largest magnitude of the others is unknown. A lower bound is their root mean square, for which the
  // masked values count as zeros.
  if (!std::isfinite(largest_b))
    largest_b = by_values && item.metrics.elements > 0 ? item.metrics.norm_b / std::sqrt(static_cast<double>(item.metrics.elements)) : 0;
  const double atol = t.atol * (scale == scales_.end() ? 1.0 : std::min(1.0, scale->second));
  const double allowed = atol + t.rtol * largest_b;
  const double seen = std::max(by_values ? item.metrics.max_abs : 0, by_statistics ? apart_in_statistics(item, largest_b, t) : 0);
  if (std::isinf(item.error)) {
    item.message = not_finite_text(item);
  } else if (item.reference_error_a >= 0) {
    const double limit = options_.proportion * std::max(cost_of(item, call), noise() / 8);
    if (item.reference_error_a > limit)
      item.message = "error relative to the reference " + short_number(item.reference_error_a, 3) + ", that of the other run " +
                     short_number(item.reference_error_b, 3) + ", allowed " + short_number(limit, 3);
  } else if (!(seen <= allowed)) {
    item.message = printed("differs by %.3g, allowed %.3g", seen, allowed);
  }
  item.failed = !item.message.empty();
}

}  // namespace detail

Tolerance default_tolerance(const std::string& dtype_a, const std::string& dtype_b) {
  const auto dtype = detail::coarser_dtype(dtype_a, dtype_b);
  if (dtype == "torch.bfloat16") return {1e-2, 5e-2};
  if (dtype == "torch.float16") return {1e-3, 1e-2};
  if (dtype == "torch.float32") return {1e-5, 1e-3};
  if (dtype == "torch.float64") return {1e-8, 1e-6};
  return {0, 0};
}

}  // namespace npu_train
