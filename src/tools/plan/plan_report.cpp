#include <algorithm>

#include "npu_train/core/text.hpp"
#include "npu_train/tools/plan/plan.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {
namespace {

std::string speed_text(double value) {
  constexpr double kMany = 1000;
  return value < kMany ? short_number(value, 3) : with_commas(static_cast<int64_t>(value + 0.5));
}

std::string placed_text(const Placement& p) {
  return p.strategy + (p.shard_size > 0 ? " by " + std::to_string(p.shard_size) : "") +
         (p.group_size > 0 ? ", groups of " + std::to_string(p.group_size) : "");
}

// Describes the model and the speeds on which the numbers are based.
std::string basis_text(const Plan& plan) {
  const auto& work = plan.work;
  std::string out = plan.model + ", batch " + with_commas(work.batch);
  if (work.micro_batches > 1) out += " x " + std::to_string(work.micro_batches) + " accumulated";
  out += " on each rank; " + flops_text(plan.rates.flops) + " a second computed";
  if (plan.cluster.link.bytes_per_second > 0)
    out += "; link " + rate_text(plan.cluster.link.bytes_per_second) + ", " + seconds_text(plan.cluster.link.latency);
  if (plan.cluster.local.bytes_per_second > 0)
    out += "; within a machine of " + std::to_string(plan.cluster.per_machine) + " ranks " +
           rate_text(plan.cluster.local.bytes_per_second) + ", " + seconds_text(plan.cluster.local.latency);
  return out + (work.between_devices ? "; NCCL or HCCL" : "; Gloo");
}

int64_t unfitted_of(const StepFit& fit) {
  return std::count_if(fit.steps.begin(), fit.steps.end(), [](const auto& s) { return !s.was_fitted; });
}

// Returns the best strategy for the largest number of ranks or, if no ranks were planned, how well the steps were fitted.
std::string verdict_of(const Plan& plan) {
  if (plan.steps.empty()) {
    const auto checked = unfitted_of(*plan.fit);
    if (checked == 0) return "fitted to " + std::to_string(plan.fit->steps.size()) + " steps";
    return "mean error " + percentage(plan.fit->mean_error()) + " at " + std::to_string(checked) + " steps that were not fitted";
  }
  const int ranks = plan.steps.back().placement.ranks;
  const auto* best = plan.best(ranks);
  const auto with = with_commas(ranks) + (ranks == 1 ? " rank" : " ranks");
  if (best == nullptr) return "no strategy fits with " + with;
  return "best with " + with + ": " + placed_text(best->placement) + ", " + seconds_text(best->time.seconds) + " a step, " +
         speed_text(best->samples_per_second) + " samples/s";
}

ReportTable steps_table(const Plan& plan) {
  ReportTable out;
  for (const auto& s : plan.steps)
    out.add({both("ranks", s.placement.ranks), shown("strategy", placed_text(s.placement)), data("strategy", s.placement.strategy),
             data("shard_size", s.placement.shards()), data("group_size", s.placement.group_size),
             both("step_s", "step", {s.time.seconds, seconds_text(s.time.seconds)}), data("compute_s", s.time.compute),
             data("communication_s", s.time.communication), both("waiting", share_value(s.time.waiting())),
             data("sent_bytes", s.time.sent_bytes), data("between_bytes", s.time.between_bytes),
             both("samples_per_s", "samples/s", {s.samples_per_second, speed_text(s.samples_per_second)}),
             both("efficiency", share_value(s.efficiency)),
             both("memory", s.memory > 0 ? bytes_value(s.memory) : ReportValue(s.memory, "-")), data("fits", s.fits),
             data("best", s.is_best), data("extrapolation", s.beyond),
             shown("verdict", s.is_best ? "best"
                              : s.fits  ? ""
                                        : "too large")});
  return out;
}

ReportTable fit_table(const StepFit& fit) {
  ReportTable out;
  for (const auto& s : fit.steps)
    out.add({both("step", "measured step", s.step.name()), both("measured_s", "measured", {s.step.seconds, seconds_text(s.step.seconds)}),
             both("predicted_s", "predicted", {s.predicted, seconds_text(s.predicted)}), both("error", share_value(s.error())),
             data("fitted", s.was_fitted), shown("use", s.was_fitted ? "fitted" : "")});
  return out;
}

std::string fit_text(const StepFit& fit) {
  const auto unfitted = unfitted_of(fit);
  if (unfitted == 0) return "no step was kept to check the fit; hint: a column use, with check in the rows that are not to be fitted";
  return std::to_string(unfitted) + " steps that were not fitted" + (fit.by_parts ? " (each fifth from the others)" : "") +
         ": mean error " + percentage(fit.mean_error()) + ", largest " + percentage(fit.largest_error());
}

// Combines rows with the same text into one sentence.
std::vector<std::string> beyond_texts(const Plan& plan) {
  std::vector<std::string> different;
  for (const auto& s : plan.steps)
    if (!s.beyond.empty() && std::find(different.begin(), different.end(), s.beyond) == different.end()) different.push_back(s.beyond);
  std::vector<std::string> out;
  for (const auto& beyond : different) {
    std::vector<std::string> rows;
    for (const auto& s : plan.steps)
      if (s.beyond == beyond && (rows.empty() || rows.back() != with_commas(s.placement.ranks)))
        rows.push_back(with_commas(s.placement.ranks));
    out.push_back(beyond + " (at " + join(rows) + ")");
  }
  return out;
}

}  // namespace

Report report_of(const Plan& plan) {
  Report out("Plan for " + plan.model, Json::object({{"model", plan.model},
                                                     {"batch_size", plan.work.batch},
                                                     {"micro_batches", plan.work.micro_batches},
                                                     {"flops_per_sample", plan.work.flops},
                                                     {"rates", Json::object({{"flops", plan.rates.flops},
                                                                             {"memory", plan.rates.memory},
                                                                             {"link_share", plan.rates.link_share},
                                                                             {"message_s", plan.rates.message},
                                                                             {"contention", plan.rates.contention},
                                                                             {"carrying_s", plan.rates.carrying}})},
                                                     {"memory_limit", plan.memory_limit}}));
  out.verdict(verdict_of(plan));
  out.verdict(basis_text(plan));
  if (plan.fit) {
    const auto steps = fit_table(*plan.fit);
    out.data(
        {{"fit",
          Json::object({{"steps", steps.json()}, {"mean_error", plan.fit->mean_error()}, {"largest_error", plan.fit->largest_error()}})}});
    out.table("", steps);
    out.verdict(fit_text(*plan.fit));
  } else {
    out.data({{"fit", {}}});
  }
  out.table("steps", steps_table(plan));
  out.remarks("extrapolation beyond the measured steps", beyond_texts(plan));
  out.notes(plan.notes);
  return out;
}

}  // namespace npu_train
