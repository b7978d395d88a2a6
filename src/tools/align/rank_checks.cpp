// Checks one step of several ranks: values that must be equal on all ranks, and values that must be correct.
#include "tools/align/rank_checks.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train::detail {
namespace {

// The ranks whose value differs from the value of the majority or, without a majority, from the value of the lowest rank.
struct OddOnes {
  std::vector<int> ranks{};
  std::string common{};  // value of the majority or of the lowest rank
  bool by_majority = false;
};

OddOnes odd_ones(const RanksOfStep& ranks, const std::function<std::string(const RankNotes&)>& value) {
  std::map<std::string, int> votes;
  for (const auto& [rank, notes] : ranks) ++votes[value(notes)];
  OddOnes out{.common = value(ranks.begin()->second)};
  for (const auto& [text, count] : votes)
    if (2 * count > static_cast<int>(ranks.size())) {
      out.common = text;
      out.by_majority = true;
    }
  for (const auto& [rank, notes] : ranks)
    if (value(notes) != out.common) out.ranks.push_back(rank);
  return out;
}

std::string of_ranks(const OddOnes& odd, const RanksOfStep& ranks) {
  std::vector<std::string> names;
  for (const int rank : odd.ranks) names.push_back(std::to_string(rank));
  const auto who = (names.size() == 1 ? "rank " : "ranks ") + join(names);
  if (odd.by_majority) return who + (names.size() == 1 ? " differs" : " differ") + " from the other ranks";
  return who + (names.size() == 1 ? " differs" : " differ") + " from rank " + std::to_string(ranks.begin()->first) +
         " (no majority shows which is wrong)";
}

const RankParameter* find(const RankNotes& notes, size_t i, const std::string& name) {
  if (i < notes.parameters.size() && notes.parameters[i].name == name) return &notes.parameters[i];
  const auto found = std::find_if(notes.parameters.begin(), notes.parameters.end(), [&](const auto& p) { return p.name == name; });
  return found == notes.parameters.end() ? nullptr : &*found;
}

class StepChecks {
 public:
  StepChecks(int64_t step, const RanksOfStep& ranks) : step_(step), ranks_(ranks), first_(ranks.begin()->second) {}

  std::vector<RankFault> run() {
    equal("weights before the step", "the weights before the step", &RankParameter::before);
    random_numbers();
    samples();
    finite();
    known_sums();
    equal("reduced gradient", "the reduced gradient", &RankParameter::reduced);
    sums_of_gradients();
    clipping();
    number("schedule", "learning rate", &RankNotes::lr);
    number("schedule", "loss scale", &RankNotes::loss_scale);
    equal("weights after the step", "the weights after the step", &RankParameter::after);
    return std::move(faults_);
  }

 private:
  bool has(const std::string& kind) const {
    return std::any_of(faults_.begin(), faults_.end(), [&](const RankFault& f) { return f.kind == kind; });
  }

  void add(const std::string& kind, int rank, const std::string& text, const std::string& parameter = "") {
    faults_.push_back({.step = step_,
                       .rank = rank,
                       .kind = kind,
                       .layer = parameter.empty()             ? ""
                                : layer_of(parameter).empty() ? parameter
                                                              : layer_of(parameter),
                       .text = text,
                       .advice = advice_for(kind)});
  }

  // Compares a digest of each parameter. Reports the first parameter that differs, and the number of other parameters that differ.
  void equal(const std::string& kind, const std::string& what, std::string RankParameter::*digest) {
    OddOnes first;
    std::string name;
    int64_t count = 0;
    for (size_t i = 0; i < first_.parameters.size(); ++i) {
      const auto& parameter = first_.parameters[i].name;
      const auto odd = odd_ones(ranks_, [&](const RankNotes& notes) {
        const auto* p = find(notes, i, parameter);
        return p == nullptr ? std::string() : p->*digest;
      });
      if (odd.ranks.empty()) continue;
      if (count++ == 0) {
        first = odd;
        name = parameter;
      }
    }
    if (count == 0) return;
    const auto others = count == 1 ? "" : ", and of " + std::to_string(count - 1) + " more parameters";
    add(kind, first.ranks[0], what + " of " + name + others + ": " + of_ranks(first, ranks_), name);
  }

  void number(const std::string& kind, const std::string& what, double RankNotes::*value) {
    const auto odd = odd_ones(ranks_, [&](const RankNotes& notes) { return shortest(notes.*value); });
    if (odd.ranks.empty()) return;
    add(kind, odd.ranks[0],
        "the " + what + " is " + shortest(ranks_.at(odd.ranks[0]).*value) + " instead of " + odd.common + ": " + of_ranks(odd, ranks_));
  }

  void random_numbers() {
    if (first_.portable) {
      const auto odd = odd_ones(ranks_, [](const RankNotes& notes) { return notes.seed; });
      if (!odd.ranks.empty())
        add("random numbers", odd.ranks[0],
            "the seed of portable random numbers is " + ranks_.at(odd.ranks[0]).seed + " instead of " + odd.common + ": " +
                of_ranks(odd, ranks_));
      return;
    }
    std::map<std::string, int> seen;
    for (const auto& [rank, notes] : ranks_) {
      const auto [before, is_new] = seen.emplace(notes.seed, rank);
      if (is_new) continue;
      add("random numbers", rank,
          "ranks " + std::to_string(before->second) + " and " + std::to_string(rank) + " have the same seed, " + notes.seed +
              ": they draw equal dropout masks and augmentations");
      return;
    }
  }

  // Reports ranks that share half or more of their samples with another rank.
  void samples() {
    const auto shared = [&](const char* what, const std::function<std::vector<std::string>(const RankNotes&)>& names_of) {
      std::map<std::string, int> owner;
      for (const auto& [rank, notes] : ranks_) {
        const auto names = names_of(notes);
        const std::set<std::string> distinct(names.begin(), names.end());
        if (2 * distinct.size() < names.size()) return;  // if a rank repeats its own samples, shared samples prove nothing
        size_t common = 0;
        int other = rank;
        for (const auto& name : distinct)
          if (const auto [at, is_new] = owner.emplace(name, rank); !is_new) {
            ++common;
            other = at->second;
          }
        if (common == 0 || 2 * common < names.size()) continue;
        add("data", rank,
            std::to_string(common) + " of the " + std::to_string(names.size()) + " samples of rank " + std::to_string(rank) + " " + what +
                " of rank " + std::to_string(other) + range_of(notes));
        return;
      }
    };
    shared("have the ids of samples", [](const RankNotes& notes) {
      std::vector<std::string> out;
      for (const auto& batch : notes.batches)
        for (const auto id : batch.ids) out.push_back(std::to_string(id));
      return out;
    });
    if (has("data")) return;
    shared("have the content of samples", [](const RankNotes& notes) {
      std::vector<std::string> out;
      for (const auto& batch : notes.batches) out.insert(out.end(), batch.contents.begin(), batch.contents.end());
      return out;
    });
  }

  static std::string range_of(const RankNotes& notes) {
    int64_t low = std::numeric_limits<int64_t>::max(), high = -1;
    for (const auto& batch : notes.batches)
      for (const auto id : batch.ids) {
        low = std::min(low, id);
        high = std::max(high, id);
      }
    return high < 0 ? "" : " (its ids are " + std::to_string(low) + " to " + std::to_string(high) + ")";
  }

  // Checks that losses and gradients are finite. A skipped step is not checked, since it may overflow.
  void finite() {
    for (const auto& [rank, notes] : ranks_)
      for (const auto& batch : notes.batches)
        if (notes.taken && !std::isfinite(batch.loss))
          return add("loss", rank, "the loss of rank " + std::to_string(rank) + " is " + short_number(batch.loss));
    for (const auto& [rank, notes] : ranks_)
      for (const auto& p : notes.parameters)
        if (notes.taken && !std::isfinite(p.local_square))
          return add("gradient norm", rank, "the gradient of " + p.name + " on rank " + std::to_string(rank) + " is not finite", p.name);
  }

  void known_sums() {
    for (const auto& [rank, notes] : ranks_) {
      if (notes.summed == notes.known_sums) continue;
      size_t i = 0;
      while (i + 1 < notes.summed.size() && i < notes.known_sums.size() && notes.summed[i] == notes.known_sums[i]) ++i;
      const auto text = [&](const std::vector<double>& numbers) {
        return i < numbers.size() ? shortest(numbers[i]) : std::string("missing");
      };
      return add("all-reduce", rank,
                 "a sum over ranks of known values is " + text(notes.summed) + " on rank " + std::to_string(rank) + "; it must be " +
                     text(notes.known_sums));
    }
  }

  // Checks that the elements of a reduced gradient add up to the sum of the elements of all ranks' own gradients (sums are linear).
  void sums_of_gradients() {
    if (has("reduced gradient") || has("gradient norm") || has("loss")) return;
    for (size_t i = 0; i < first_.parameters.size(); ++i) {
      const auto& p = first_.parameters[i];
      double sum = 0, norms = 0;
      int64_t passes = 0;
      for (const auto& [rank, notes] : ranks_)
        if (const auto* own = find(notes, i, p.name)) {
          sum += own->local_sum;
          norms += std::sqrt(own->local_square);
          passes += own->passes;
        }
      if (passes == 0 || p.reduced.empty() || static_cast<int>(ranks_.size()) != first_.ranks) continue;
      const double epsilon = p.dtype == "Float" || p.dtype == "Double" ? 1e-5 : 3e-2;
      const double allowed = epsilon * norms * std::sqrt(static_cast<double>(p.numel));
      if (!(std::abs(p.reduced_sum - sum) > allowed)) continue;
      return add("all-reduce", first_.rank,
                 "the reduced gradient of " + p.name + " is not the sum of those of the ranks: its elements add up to " +
                     short_number(p.reduced_sum, 6) + ", those of the ranks to " + short_number(sum, 6),
                 p.name);
    }
  }

  void clipping() {
    if (has("reduced gradient")) return;
    const auto factor = [](const RankNotes& notes) { return notes.norm > 0 ? notes.clipped_norm / notes.norm : 1.0; };
    const auto odd = odd_ones(ranks_, [&](const RankNotes& notes) { return short_number(factor(notes), 9); });
    if (!odd.ranks.empty())
      return add("clip factor", odd.ranks[0],
                 "the gradients are multiplied by " + short_number(factor(ranks_.at(odd.ranks[0])), 6) +
                     " in unscaling and clipping, those of other ranks by another factor: " + of_ranks(odd, ranks_));
    equal("clip factor", "after clipping, the gradient", &RankParameter::clipped);
  }

  int64_t step_;
  const RanksOfStep& ranks_;
  const RankNotes& first_;
  std::vector<RankFault> faults_;
};

}  // namespace

size_t order_of(const std::string& kind) {
  return static_cast<size_t>(std::find(std::begin(kFaultKinds), std::end(kFaultKinds), kind) - std::begin(kFaultKinds));
}

std::vector<RankFault> faults_of_step(int64_t step, const RanksOfStep& ranks) { return StepChecks(step, ranks).run(); }

}  // namespace npu_train::detail
