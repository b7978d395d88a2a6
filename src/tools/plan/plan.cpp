#include "npu_train/tools/plan/plan.hpp"

#include <algorithm>
#include <set>

#include "npu_train/core/error.hpp"
#include "npu_train/dist/rings.hpp"
#include "npu_train/nn/summary.hpp"

namespace npu_train {
namespace {

constexpr int kMostRanks = 65536;

// Whether the chip connects the groups of a placement. A group size of 0 means all ranks.
bool is_connected(const StepWork& work, const Cluster& cluster, const Placement& p) {
  return !work.in_rings || detail::not_in_rings(p.ranks, std::min(p.ranks, cluster.per_machine), p.shard_size, p.group_size).empty();
}

void check_options(const PlanOptions& options, const StepWork& work) {
  for (const int ranks : options.ranks)
    check(ranks >= 1 && ranks <= kMostRanks, ErrorKind::Usage, "plan", ranks, " ranks; allowed: 1 to ", kMostRanks);
  check(options.cluster.per_machine >= 1, ErrorKind::Usage, "plan", options.cluster.per_machine, " ranks on a machine; allowed: 1 or more");
  for (const int ranks : options.ranks) {
    const int groups = work.dist.has_groups() ? group_size_of(work.dist, ranks, options.cluster.per_machine) : 0;
    check(is_connected(work, options.cluster, {.ranks = ranks, .group_size = groups}), ErrorKind::Usage, "plan", ranks, " ranks",
          groups > 0 ? " in groups of " + std::to_string(groups) : "", ", ", std::min(ranks, options.cluster.per_machine),
          " on a machine: the chip connects 1, 2, 4 or 8 NPUs of a machine, equally many on each, and 2 or 4 only within 0-3 or 4-7; hint: "
          "--per-machine 8, and numbers of ranks that fill the machines");
  }
  const bool needs_link = std::any_of(options.ranks.begin(), options.ranks.end(), [](int ranks) { return ranks > 1; });
  check(!needs_link || options.cluster.link.bytes_per_second > 0, ErrorKind::Usage, "plan",
        "the speed of the link between the ranks is not given; hint: --link 25GB/s,5us");
}

// Returns the candidate sizes of groups and shards below `ranks`, largest first: the ranks per machine, and the numbers of ranks in the
// options.
std::vector<int> smaller_sizes(const PlanOptions& options, int ranks) {
  std::set<int, std::greater<>> out(options.ranks.begin(), options.ranks.end());
  out.insert(options.cluster.per_machine);
  std::erase_if(out, [&](int size) { return size <= 1 || size >= ranks; });
  return {out.begin(), out.end()};
}

// Returns the candidate shard sizes; 0: all ranks.
std::vector<int> shard_sizes(const PlanOptions& options, const StepWork& work, const std::string& strategy, int ranks) {
  std::vector<int> out = {0};
  if (strategy == "ddp" || Compression::parse(work.dist.compression).has_error_feedback()) return out;
  for (const int size : smaller_sizes(options, ranks))
    if (ranks % size == 0) out.push_back(size);
  return out;
}

// Returns whether dist.group_size could be added to these options without a contradiction.
bool could_have_groups(const DistOptions& dist) {
  const auto compression = Compression::parse(dist.compression);
  return dist.reduction != "ordered" && dist.reduce != "micro_batch" && dist.reduce_dtype == "fp32" &&
         (compression.none() || compression.has_error_feedback());
}

// Returns the configured group size or, if there is none, 0 (no groups) and the candidate sizes.
std::vector<int> group_sizes(const PlanOptions& options, const StepWork& work, int ranks) {
  if (work.dist.has_groups()) return {group_size_of(work.dist, ranks, options.cluster.per_machine)};
  std::vector<int> out = {0};
  if (!could_have_groups(work.dist)) return out;
  const auto sizes = smaller_sizes(options, ranks);
  out.insert(out.end(), sizes.begin(), sizes.end());
  return out;
}

std::vector<Placement> placements_of(const PlanOptions& options, const StepWork& work, const std::string& strategy, int ranks) {
  std::vector<Placement> out;
  for (const int group_size : group_sizes(options, work, ranks))
    for (const int shard_size : shard_sizes(options, work, strategy, ranks)) {
      const Placement placement{.strategy = strategy, .ranks = ranks, .shard_size = shard_size, .group_size = group_size};
      if (is_connected(work, options.cluster, placement)) out.push_back(placement);
    }
  return out;
}

class Planner {
 public:
  Planner(const StepWork& work, const PlanOptions& options, const MemoryOfRank& memory, Plan& plan)
      : work_(work), options_(options), memory_(memory), plan_(plan) {}

  void add(int ranks) {
    if (ranks == 1) {
      add_best({{.strategy = "single", .ranks = 1}});
      plan_.steps.back().is_best = plan_.steps.back().fits;
      return;
    }
    const auto first = plan_.steps.size();
    for (const char* strategy : kStrategyNames) {
      if (std::string(strategy) == "zero3" && !work_.divides_parameters) continue;
      add_best(placements_of(options_, work_, strategy, ranks));
    }
    PlannedStep* best = nullptr;
    for (auto i = first; i < plan_.steps.size(); ++i)
      if (plan_.steps[i].fits && (best == nullptr || is_better(plan_.steps[i], *best))) best = &plan_.steps[i];
    if (best != nullptr) best->is_best = true;
  }

 private:
  // Returns whether the step of `a` is shorter. Differences below 0.1 % are rounding and do not count.
  static bool is_better(const PlannedStep& a, const PlannedStep& b) {
    constexpr double kEqual = 1e-3;
    return a.time.seconds < b.time.seconds * (1 - kEqual);
  }

  PlannedStep planned(const Placement& placement) const {
    PlannedStep out{.placement = placement, .time = step_time(work_, placement, options_.cluster, plan_.rates)};
    const auto alone = step_time(work_, {.strategy = "single", .ranks = 1}, options_.cluster, plan_.rates);
    const double samples = static_cast<double>(work_.batch * work_.micro_batches);
    out.samples_per_second = samples * placement.ranks / out.time.seconds;
    out.efficiency = alone.seconds / out.time.seconds;
    if (options_.memory > 0) add_memory(out);
    if (!options_.measured.empty()) out.beyond = beyond_measured(work_, options_.measured, placement, options_.cluster.link);
    return out;
  }

  void add_memory(PlannedStep& step) const {
    if (!memory_) return;
    step.memory = memory_(step.placement);
    step.fits = options_.memory == 0 || step.memory <= options_.memory;
  }

  // Adds the best placement: one that fits before one that does not; if none fits, the one with the least memory.
  void add_best(const std::vector<Placement>& placements) {
    std::optional<PlannedStep> best;
    for (const auto& placement : placements) {
      auto step = planned(placement);
      const bool replaces = !best || (step.fits != best->fits ? step.fits
                                      : step.fits             ? is_better(step, *best)
                                                              : step.memory < best->memory);
      if (replaces) best = std::move(step);
    }
    if (options_.memory == 0) add_memory(*best);  // without a limit, only the memory of the chosen placement is needed
    plan_.steps.push_back(std::move(*best));
  }

  const StepWork& work_;
  const PlanOptions& options_;
  const MemoryOfRank& memory_;
  Plan& plan_;
};

}  // namespace

const PlannedStep* Plan::best(int ranks) const {
  for (const auto& step : steps)
    if (step.placement.ranks == ranks && step.is_best) return &step;
  return nullptr;
}

namespace {

// Adds notes on limits of the plan that the rows do not show.
void add_notes(const StepWork& work, const std::set<int>& ranks, Plan& plan) {
  for (const int n : ranks)
    if (plan.best(n) == nullptr) plan.notes.push_back("no strategy fits with " + std::to_string(n) + (n == 1 ? " rank" : " ranks"));
  const bool adds_groups = !work.dist.has_groups() && std::any_of(plan.steps.begin(), plan.steps.end(),
                                                                  [](const auto& step) { return step.placement.group_size > 0; });
  if (adds_groups)
    plan.notes.push_back("groups of ranks (dist.group_size) add natively: their sums agree with those of one process except for rounding");
  if (!Compression::parse(work.dist.compression).none())
    plan.notes.push_back("dist.compression=" + work.dist.compression + ": bytes and calls are modelled, the time of compressing is not");
}

}  // namespace

Plan plan_steps(const StepWork& work, const PlanOptions& options, const MemoryOfRank& memory) {
  check_options(options, work);
  Plan out{.model = work.model, .work = work, .cluster = options.cluster, .rates = options.rates, .memory_limit = options.memory};
  if (!options.measured.empty()) {
    out.fit = fit_rates(work, options.measured, options.rates);
    out.rates = out.fit->rates;
  } else if (options.one_rank_seconds > 0) {
    out.rates.flops = kStepPasses * work.flops * static_cast<double>(work.batch * work.micro_batches) / options.one_rank_seconds;
  }
  check(!options.ranks.empty() || out.fit, ErrorKind::Usage, "plan", "neither numbers of ranks nor measured steps are given");
  Planner planner(work, options, memory, out);
  const std::set<int> ranks(options.ranks.begin(), options.ranks.end());
  for (const int n : ranks) planner.add(n);
  add_notes(work, ranks, out);
  return out;
}

}  // namespace npu_train
