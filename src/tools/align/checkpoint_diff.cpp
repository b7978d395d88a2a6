#include "npu_train/tools/align/checkpoint_diff.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <ATen/ops/sort.h>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "tools/align/checkpoint_diff_parts.hpp"
#include "tools/align/compare_parts.hpp"
#include "tools/align/match_calls.hpp"

namespace npu_train {
namespace {

using detail::StoredWeights;
using Kind = ItemComparison::Kind;

constexpr std::array kParts = {"model", "optimizer", "ema"};
constexpr double kUnbounded = std::numeric_limits<double>::infinity();

std::string sizes_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> parts;
  for (const auto n : shape) parts.push_back(std::to_string(n));
  return "[" + join(parts) + "]";
}

bool near_number(double a, double b) { return std::abs(a - b) <= 1e-5 * std::max(std::abs(a), std::abs(b)); }

// Permutations between common orders of a weight's dimensions: rows and columns; OIHW, HWIO or OHWI.
const std::vector<std::vector<int64_t>>& layouts() {
  static const std::vector<std::vector<int64_t>> out = {{1, 0},       {2, 1, 0},    {1, 0, 2},    {2, 3, 1, 0},
                                                        {3, 2, 0, 1}, {1, 0, 2, 3}, {0, 2, 3, 1}, {0, 3, 1, 2}};
  return out;
}

bool is_transpose(const at::Tensor& a, const at::Tensor& b) {
  return std::any_of(layouts().begin(), layouts().end(), [&](const auto& order) {
    if (a.dim() != static_cast<int64_t>(order.size())) return false;
    const auto turned = a.permute(order);
    return turned.sizes() == b.sizes() && compare_tensors(turned.contiguous(), b).relative_norm < 1e-6;
  });
}

class CheckpointComparer {
 public:
  CheckpointComparer(const StoredWeights& a, const StoredWeights& b, const std::set<std::string>& parts, const CompareOptions& options)
      : a_(a),
        b_(b),
        options_(options),
        step_a_(detail::layers_of(a, parts, options.mapping)),
        step_b_(detail::layers_of(b, parts, {})),
        judge_(no_dump_, no_dump_, options) {}

  StepComparison run(DumpComparison& whole) {
    const detail::ChosenCalls chosen_a(step_a_, options_), chosen_b(step_b_, options_);
    const auto pairs = detail::match_calls(step_a_, step_b_, options_).pairs;
    out_.regrouped = detail::regrouped_modules(step_a_, step_b_, pairs);
    for (const auto& [i, j] : pairs) {
      const auto* a = i >= 0 ? &step_a_.calls[static_cast<size_t>(i)] : nullptr;
      const auto* b = j >= 0 ? &step_b_.calls[static_cast<size_t>(j)] : nullptr;
      if (!(a != nullptr ? chosen_a.has(static_cast<size_t>(i)) : chosen_b.has(static_cast<size_t>(j))))
        ++out_.skipped;
      else
        pair_layer(a, b);
    }
    note_pairs();
    whole.bytes += bytes_;
    return std::move(out_);
  }

 private:
  void pair_layer(const DumpCall* a, const DumpCall* b) {
    const auto& any = a != nullptr ? *a : *b;
    CallComparison call{.a = a != nullptr ? a->name : "",
                        .b = b != nullptr ? b->name : "",
                        .layer = any.layer,
                        .type = any.is_module ? any.type.substr(0, any.type.find(' ')) : "State",
                        .direction = any.direction};
    if (a == nullptr || b == nullptr) {
      ++out_.one_sided;
      ItemComparison item{.a = call.a, .b = call.b, .side = "parameters"};
      item.kind = Kind::OneSided;
      item.message = std::string("missing in ") + (a == nullptr ? "A" : "B") + ": a different network, or a different name of the layer";
      (a == nullptr ? missing_a_ : missing_b_).push_back(any.layer);
      const auto& holds = a == nullptr ? b_ : a_;
      item.failed = !detail::is_regrouped(out_, any.layer) &&
                    std::any_of(any.items.begin(), any.items.end(), [&](const auto& i) { return is_weight(i, holds); });
      fail(item, call);
      call.items.push_back(std::move(item));
      out_.calls.push_back(std::move(call));
      return;
    }
    if (call.a != call.b) other_names_.push_back(call.a + " with " + call.b);
    for (const auto& [x, y] : detail::match_items(*a, *b)) {
      ItemComparison item;
      if (x >= 0) item.item_a = own_name(a->items[static_cast<size_t>(x)], a_);
      if (y >= 0) item.item_b = own_name(b->items[static_cast<size_t>(y)], b_);
      item.a = item.item_a.name;
      item.b = item.item_b.name;
      item.side = "parameters";
      if (x < 0 || y < 0) {
        ++out_.one_sided;
        item.kind = Kind::OneSided;
        item.message = std::string("missing in ") + (x < 0 ? "A" : "B");
        (x < 0 ? missing_a_ : missing_b_).push_back(x < 0 ? item.b : item.a);
        item.failed = x < 0 ? is_weight(item.item_b, b_) : is_weight(item.item_a, a_);
        fail(item, call);
      } else {
        compare(item);
        finish(item, call);
      }
      item.item_a.data_name.clear();  // contains the index of an entry, not a file name
      item.item_b.data_name.clear();
      call.items.push_back(std::move(item));
    }
    out_.calls.push_back(std::move(call));
  }

  void fail(const ItemComparison& item, CallComparison& call) {
    out_.failed += item.failed;
    call.failed |= item.failed;
  }

  // Whether the model's result depends on the entry. The number of batches that a norm has counted does not affect the result.
  static bool is_weight(const DumpItem& item, const StoredWeights& weights) {
    const auto& entry = entry_of(item, weights);
    return entry.part == "model" && !entry.name.ends_with("num_batches_tracked");
  }

  // Restores the name of the item in its own file, which a mapping may have replaced.
  static DumpItem own_name(DumpItem item, const StoredWeights& weights) {
    const auto& entry = entry_of(item, weights);
    item.name = (entry.part == "model" ? "" : entry.part + " ") + entry.name;
    return item;
  }
  static const StoredWeights::Entry& entry_of(const DumpItem& item, const StoredWeights& weights) {
    return weights.entries().at(std::stoul(item.data_name));
  }

  void compare(ItemComparison& item) {
    try {
      const auto a = a_.read(entry_of(item.item_a, a_)).detach().contiguous(), b = b_.read(entry_of(item.item_b, b_)).detach().contiguous();
      bytes_ += static_cast<int64_t>(a.nbytes() + b.nbytes());
      if (a.sizes() != b.sizes()) return compare_shapes(item, a, b);
      item.kind = Kind::Tensor;
      item.metrics = compare_tensors(a, b);
      fill_statistics(item);
      item.error = item.metrics.nonfinite_mismatch > 0 || std::isnan(item.metrics.relative_norm) ? kUnbounded : item.metrics.relative_norm;
      if (item.error > 0) item.message = seen_in_values(item.metrics, a, b);
    } catch (const Error& e) {
      item.kind = Kind::NotCompared;
      item.message = e.what();
      item.error = kUnbounded;
      item.failed = true;
    }
  }

  static void fill_statistics(ItemComparison& item) {
    const auto& m = item.metrics;
    if (m.elements == 0) return;
    item.item_a.max = m.max_a, item.item_a.min = m.min_a, item.item_a.mean = m.mean_a, item.item_a.norm = m.norm_a;
    item.item_b.max = m.max_b, item.item_b.min = m.min_b, item.item_b.mean = m.mean_b, item.item_b.norm = m.norm_b;
  }

  static void compare_shapes(ItemComparison& item, const at::Tensor& a, const at::Tensor& b) {
    item.kind = Kind::Unmatched;
    item.error = kUnbounded;
    item.message = "shapes " + sizes_text(item.item_a.shape) + " and " + sizes_text(item.item_b.shape);
    if (a.numel() != b.numel()) return;
    if (is_transpose(a, b)) {
      item.message += ": transposed, the values agree";
    } else if (compare_tensors(a.flatten(), b.flatten()).relative_norm < 1e-6) {
      item.message += ": the same values in the same order, with a different shape";
    } else {
      item.message += ": equal numbers of elements in different layouts";
    }
  }

  // Describes a characteristic difference between values of the same shape; "" if there is none.
  static std::string seen_in_values(const PairMetrics& m, const at::Tensor& a, const at::Tensor& b) {
    const auto zero = [](double max, double min) { return max == 0 && min == 0; };
    if (m.nonfinite_mismatch > 0) return "";  // the judge reports which side is not finite
    if (zero(m.max_a, m.min_a) != zero(m.max_b, m.min_b)) return std::string("all zero in ") + (zero(m.max_a, m.min_a) ? "A" : "B");
    if (m.relative_norm < 1e-3 || m.elements < 2) return "";
    if (m.max_a == m.min_a || !near_number(m.max_a, m.max_b) || !near_number(m.min_a, m.min_b) || !near_number(m.norm_a, m.norm_b))
      return "";
    if (is_transpose(a, b)) return "transposed: the values agree with two dimensions exchanged";
    const auto sorted = [](const at::Tensor& t) { return std::get<0>(at::sort(t.flatten().to(at::kFloat))); };
    return compare_tensors(sorted(a), sorted(b)).relative_norm < 1e-6 ? "the same values in a different order" : "";
  }

  void finish(ItemComparison& item, CallComparison& call) {
    auto seen = std::move(item.message);
    item.message.clear();
    judge_.judge(item, call);
    if (!item.failed && detail::is_nan_in_both(item)) {
      item.failed = true;
      item.message = "NaN on both sides, which proves nothing";
    }
    if (item.message.empty() || (item.failed && item.kind == Kind::Tensor && !seen.empty()))
      item.message = item.message.empty() ? seen : item.message + ": " + seen;
    ++(item.kind == Kind::NotCompared ? out_.not_compared : out_.compared);
    out_.failed += item.failed;
    call.failed |= item.failed;
    call.parameter_error = std::max(call.parameter_error, item.error);
  }

  void note_pairs() {
    const auto tell = [&](const std::vector<std::string>& names, const std::string& what) {
      if (names.empty()) return;
      out_.notes.push_back(what + " (" + with_commas(static_cast<int64_t>(names.size())) + "): " + detail::first_few(names, 5));
    };
    tell(missing_b_, "only in A");
    tell(missing_a_, "only in B");
    tell(other_names_, "paired under different names, by the mapping or by shape and order");
  }

  const StoredWeights &a_, &b_;
  const CompareOptions& options_;
  DumpStep step_a_, step_b_;
  const DumpStep no_dump_{};
  detail::ItemJudge judge_;
  StepComparison out_;
  int64_t bytes_ = 0;
  std::vector<std::string> missing_a_, missing_b_, other_names_;
};

std::set<std::string> parts_of_both(const StoredWeights& a, const StoredWeights& b, DumpComparison& out) {
  std::set<std::string> parts;
  for (const char* part : kParts) {
    if (a.has(part) && b.has(part)) parts.insert(part);
    if (a.has(part) != b.has(part))
      out.notes.push_back(std::string("only ") + (a.has(part) ? "A" : "B") + " contains the part " + part + "; not compared");
  }
  return parts;
}

std::set<std::string> names_in(const StoredWeights& weights) {
  std::set<std::string> names;
  for (const auto& entry : weights.entries()) names.insert({entry.name, layer_of(entry.name)});
  return names;
}

}  // namespace

DumpComparison compare_checkpoints(const std::filesystem::path& path_a, const std::filesystem::path& path_b,
                                   const CompareOptions& options) {
  detail::check_options(options);
  return translated("compare", [&] {
    const auto opened = [](const std::filesystem::path& path) { return detail::as_input([&] { return StoredWeights(path); }); };
    const auto a = opened(path_a), b = opened(path_b);
    DumpComparison out;
    out.a = path_a.string();
    out.b = path_b.string();
    out.sampled = options.sample < 1 || !options.layers.empty();
    out.facts_a = a.facts();
    out.facts_b = b.facts();
    for (const auto& [key, value] : a.facts())
      if (const auto other = b.facts().find(key); other != b.facts().end() && other->second != value)
        out.notes.push_back(key + ": " + value + " and " + other->second);
    for (const auto& notes : {detail::ties_broken(a, b, "A", "B"), detail::ties_broken(b, a, "B", "A")})
      out.notes.insert(out.notes.end(), notes.begin(), notes.end());
    detail::tell_unknown(detail::unknown_names(names_in(a), names_in(b), options), options, out);
    const auto parts = parts_of_both(a, b, out);
    const bool whole = std::all_of(kParts.begin(), kParts.end(), [&](const char* part) { return a.has(part) == b.has(part); });
    auto step = CheckpointComparer(a, b, parts, options).run(out);
    check(step.compared + step.not_compared > 0, ErrorKind::Data, "compare", out.a, " and ", out.b, ": they have no tensor in common",
          options.layers.empty() ? "; hint: they must be of the same network; --mapping FILE pairs different names"
                                 : detail::chosen_layers_text(options));
    out.agrees = step.failed == 0;
    out.complete = whole && step.one_sided == 0 && step.not_compared == 0;
    out.first = detail::first_difference_of(step, out.facts_a, out.facts_b);
    out.steps.push_back(std::move(step));
    detail::tell_unused_tolerances(options, out);
    return out;
  });
}

}  // namespace npu_train
