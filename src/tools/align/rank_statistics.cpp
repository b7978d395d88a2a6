// Checks statistics over all steps that must be alike on all ranks: inputs, losses, norms of gradients.
#include "tools/align/rank_checks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include "npu_train/core/text.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train::detail {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kLeastValues = 4;  // with fewer values, no difference is reported

// Combines the spreads of two sets of values (Chan's formula).
Spread merged(const Spread& a, const Spread& b) {
  if (a.count == 0 || b.count == 0) return a.count == 0 ? b : a;
  const auto na = static_cast<double>(a.count), nb = static_cast<double>(b.count), n = na + nb, gap = b.mean - a.mean;
  const double squares = a.variance * (na - 1) + b.variance * (nb - 1) + gap * gap * na * nb / n;
  return {.count = a.count + b.count, .mean = a.mean + gap * nb / n, .variance = squares / (n - 1)};
}

Spread spread_of(const std::vector<double>& values) {
  Spread out;
  for (const double value : values) out = merged(out, {.count = 1, .mean = value, .variance = 0});
  return out;
}

// Returns the largest difference that counts as alike, in standard errors. It is higher for few values, where large differences are likely.
double limit_of(int64_t least_count, const RankLimits& limits) {
  return limits.errors * (1 + 8 / static_cast<double>(std::max<int64_t>(1, least_count - 1)));
}

// A difference between one rank and the others.
struct Outlier {
  int rank = -1;
  double own = 0, others = 0, errors = 0;
};

// Returns the rank whose mean is farthest, in standard errors, from the mean of all others, if this distance exceeds the limit and the
// means differ by more than `least`.
Outlier outlier_of(const std::map<int, Spread>& ranks, double least, const RankLimits& limits) {
  Outlier out;
  for (const auto& [rank, own] : ranks) {
    Spread others;
    for (const auto& [other, spread] : ranks)
      if (other != rank) others = merged(others, spread);
    const auto count = std::min(own.count, others.count);
    if (count < kLeastValues) continue;
    const double gap = std::abs(own.mean - others.mean);
    const double error = std::sqrt(own.variance / static_cast<double>(own.count) + others.variance / static_cast<double>(others.count));
    const double errors = error > 0 ? gap / error : gap > 0 ? std::numeric_limits<double>::infinity() : 0;
    if (gap <= least || errors <= limit_of(count, limits) || errors < out.errors) continue;
    out = {rank, own.mean, others.mean, errors};
  }
  return out;
}

std::string sentence(const std::string& what, const Outlier& o, size_t ranks) {
  const auto text = what + " is " + short_number(o.own) + " on rank " + std::to_string(o.rank) + " and " + short_number(o.others) + " on " +
                    (ranks == 2 ? "the other rank" : "the other ranks");
  return text + (std::isfinite(o.errors) ? ", a difference of " + short_number(o.errors, 3) + " standard errors" : "");
}

class Likeness {
 public:
  Likeness(const std::map<int64_t, RanksOfStep>& steps, const RankLimits& limits) : steps_(steps), limits_(limits) {
    for (const auto& [step, ranks] : steps)
      for (const auto& [rank, notes] : ranks) ranks_.insert(rank);
  }

  std::vector<RankFault> run() {
    inputs();
    paired("loss", "the mean loss", loss_of, limits_.loss);
    paired("gradient norm", "the norm of a rank's own gradients", gradient_of, limits_.gradient);
    return std::move(faults_);
  }

 private:
  void add(const std::string& kind, const Outlier& outlier, const std::string& text, const std::string& layer = "") {
    faults_.push_back(
        {.step = steps_.begin()->first, .rank = outlier.rank, .kind = kind, .layer = layer, .text = text, .advice = advice_for(kind)});
  }

  void inputs() {
    std::map<int, Spread> means, deviations;
    Spread all;
    for (const auto& [step, ranks] : steps_)
      for (const auto& [rank, notes] : ranks)
        for (const auto& batch : notes.batches) {
          means[rank] = merged(means[rank], batch.means);
          deviations[rank] = merged(deviations[rank], batch.deviations);
          all = merged(all, batch.deviations);
        }
    const double least = limits_.input * all.mean;
    const auto mean = outlier_of(means, least, limits_), deviation = outlier_of(deviations, least, limits_);
    if (mean.rank >= 0 && mean.errors >= deviation.errors)
      add("data", mean, sentence("the mean of the inputs", mean, ranks_.size()));
    else if (deviation.rank >= 0)
      add("data", deviation, sentence("the standard deviation of the inputs", deviation, ranks_.size()));
  }

  // In a step, all ranks have the same weights. So for each rank, each step gives one difference from the mean of the other ranks. The mean
  // of these differences is compared with zero.
  void paired(const std::string& kind, const std::string& what, double (*value)(const RankNotes&), double fraction) {
    Outlier worst;
    for (const int rank : ranks_) {
      std::vector<double> gaps, levels;
      for (const auto& [step, ranks] : steps_) {
        if (!ranks.contains(rank)) continue;
        double others = 0;
        int count = 0;
        for (const auto& [other, notes] : ranks)
          if (const double v = value(notes); other != rank && std::isfinite(v)) {
            others += v;
            ++count;
          }
        const double own = value(ranks.at(rank));
        if (count == 0 || !std::isfinite(own)) continue;
        gaps.push_back(own - others / count);
        levels.push_back(others / count);
      }
      const auto gap = spread_of(gaps), level = spread_of(levels);
      if (gap.count < kLeastValues || std::abs(gap.mean) <= fraction * std::abs(level.mean)) continue;
      const double error = std::sqrt(gap.variance / static_cast<double>(gap.count));
      const double errors = error > 0 ? std::abs(gap.mean) / error : std::numeric_limits<double>::infinity();
      if (errors > limit_of(gap.count, limits_) && errors >= worst.errors) worst = {rank, level.mean + gap.mean, level.mean, errors};
    }
    if (worst.rank < 0) return;
    const auto parameter = kind == "gradient norm" ? farthest_parameter(worst.rank) : std::string();
    add(kind, worst, sentence(what, worst, ranks_.size()) + (parameter.empty() ? "" : "; the largest ratio is that of " + parameter),
        parameter);
  }

  // Returns the parameter whose own gradient on this rank differs from that on the other ranks by the largest factor, in the norm.
  std::string farthest_parameter(int rank) const {
    std::string out;
    double most = 0;
    const auto& ranks = steps_.begin()->second;
    if (!ranks.contains(rank)) return out;
    for (size_t i = 0; i < ranks.at(rank).parameters.size(); ++i) {
      double own = 0, others = 0;
      for (const auto& [step, of_step] : steps_)
        for (const auto& [r, notes] : of_step)
          if (i < notes.parameters.size()) (r == rank ? own : others) += std::sqrt(notes.parameters[i].local_square);
      others /= static_cast<double>(std::max<size_t>(1, ranks_.size() - 1));
      if (!(own > 0) || !(others > 0)) continue;
      if (const double ratio = std::abs(std::log(own / others)); ratio > most) {
        most = ratio;
        out = ranks.at(rank).parameters[i].name;
      }
    }
    return out;
  }

  const std::map<int64_t, RanksOfStep>& steps_;
  const RankLimits& limits_;
  std::set<int> ranks_;
  std::vector<RankFault> faults_;
};

}  // namespace

double loss_of(const RankNotes& notes) {
  double sum = 0;
  for (const auto& batch : notes.batches) sum += batch.loss;
  return notes.batches.empty() ? kNone : sum / static_cast<double>(notes.batches.size());
}

double gradient_of(const RankNotes& notes) {
  double square = 0;
  for (const auto& p : notes.parameters) square += p.local_square;
  return notes.batches.empty() ? kNone : std::sqrt(square);
}

RankSummary summary_of(int rank, const std::map<int64_t, RanksOfStep>& steps) {
  RankSummary out{.rank = rank, .host = {}, .input_mean = kNone, .input_std = kNone};
  Spread means, deviations;
  for (const auto& [step, ranks] : steps) {
    const auto found = ranks.find(rank);
    if (found == ranks.end()) continue;
    const auto& notes = found->second;
    out.host = notes.host;
    for (const auto& batch : notes.batches) {
      means = merged(means, batch.means);
      deviations = merged(deviations, batch.deviations);
    }
    out.loss[step] = loss_of(notes);
    out.gradient[step] = gradient_of(notes);
  }
  out.samples = means.count;
  if (means.count > 0) {
    out.input_mean = means.mean;
    out.input_std = deviations.mean;
  }
  return out;
}

std::vector<RankFault> faults_over_steps(const std::map<int64_t, RanksOfStep>& steps, const RankLimits& limits) {
  return Likeness(steps, limits).run();
}

std::string advice_for(const std::string& kind) {
  const std::map<std::string_view, const char*> advice = {
      {"weights before the step",
       "ranks must begin with the weights of rank 0, and only the optimizer may change them: dist.check_every=1 stops at the first "
       "step after which they differ"},
      {"random numbers",
       "set one seed for all ranks, before the model is made; with rng=portable all ranks draw by seed and position, with rng=native "
       "each rank has a seed of its own"},
      {"data",
       "all ranks must read one data set with the same transforms and the same normalisation, each its own part of every global batch "
       "(DistributedSampler in a loop of your own): compare data.root and its files on the host of this rank"},
      {"loss",
       "the losses of single batches differ, their mean over steps must not: compare the data of this rank; where a loss is not "
       "finite, lower the learning rate or warm up, since the largest usable one depends on the number of ranks"},
      {"gradient norm",
       "the same weights give larger or smaller gradients: compare the data of this rank, and dump the values of the named layer on "
       "two ranks"},
      {"all-reduce",
       "npu_tool doctor --dist checks every collective by its values; in a loop of your own, call GradientReducer::finish() before "
       "the optimizer, and do not divide by the number of ranks twice"},
      {"reduced gradient",
       "a gradient changed after the reduction, or on its way: npu_tool doctor --dist checks the collectives; look for code between "
       "reduction and optimizer that runs on one rank only, and test the memory of this rank's machine"},
      {"clip factor",
       "clip after the reduction, by the norm of the reduced gradients, with one trainer.gradient_clip_val for all ranks: a norm of a "
       "rank's own gradients gives each rank another factor"},
      {"schedule",
       "learning rate and loss scale follow from numbers that all ranks share: set trainer.lr_scaling and lr_scheduler.warmup_steps "
       "for the number of ranks once, and change nothing by rank"},
      {"weights after the step",
       "the gradients were equal, so the optimizers differ: its options and state must be equal on all ranks, also after a checkpoint "
       "was loaded"}};
  const auto found = advice.find(kind);
  return found == advice.end() ? "" : found->second;
}

}  // namespace npu_train::detail
