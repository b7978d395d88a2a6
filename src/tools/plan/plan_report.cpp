#include <algorithm>

#include "npu_train/core/text.hpp"
#include "npu_train/tools/plan/plan.hpp"
#include "npu_train/tools/report/number.hpp"
#include "npu_train/tools/report/text_table.hpp"

namespace npu_train {
namespace {

std::string percent_text(double share) { return short_number(100 * share, 3) + " %"; }

std::string speed_text(double value) {
  constexpr double kMany = 1000;
  return value < kMany ? short_number(value, 3) : with_commas(static_cast<int64_t>(value + 0.5));
}

std::string placed_text(const Placement& p) {
  return p.strategy + (p.shard_size > 0 ? " by " + std::to_string(p.shard_size) : "") +
         (p.group_size > 0 ? ", groups of " + std::to_string(p.group_size) : "");
}

// The model and speeds on which the numbers are based.
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
  return out + (work.between_devices ? "; NCCL or HCCL" : "; Gloo") + "\n";
}

int64_t unfitted_of(const StepFit& fit) {
  return std::count_if(fit.steps.begin(), fit.steps.end(), [](const auto& s) { return !s.was_fitted; });
}

// The best strategy for the largest number of ranks, or how well the steps were fitted.
std::string verdict_of(const Plan& plan) {
  if (plan.steps.empty()) {
    const auto checked = unfitted_of(*plan.fit);
    if (checked == 0) return "fitted to " + std::to_string(plan.fit->steps.size()) + " steps\n";
    return "mean error " + percent_text(plan.fit->mean_error()) + " at " + std::to_string(checked) + " steps that were not fitted\n";
  }
  const int ranks = plan.steps.back().placement.ranks;
  const auto* best = plan.best(ranks);
  const auto with = with_commas(ranks) + (ranks == 1 ? " rank" : " ranks");
  if (best == nullptr) return "no strategy fits with " + with + "\n";
  return "best with " + with + ": " + placed_text(best->placement) + ", " + seconds_text(best->time.seconds) + " a step, " +
         speed_text(best->samples_per_second) + " samples/s\n";
}

std::string table_of(const Plan& plan, size_t width) {
  TextTable table({"ranks", "strategy", "step", "waiting", "samples/s", "efficiency", "memory", ""});
  for (const auto& s : plan.steps)
    table.add_row({with_commas(s.placement.ranks), placed_text(s.placement), seconds_text(s.time.seconds), percent_text(s.time.waiting()),
                   speed_text(s.samples_per_second), percent_text(s.efficiency),
                   s.memory > 0 ? human_bytes(static_cast<double>(s.memory)) : "-",
                   s.is_best ? "best"
                   : s.fits  ? ""
                             : "too large"});
  return table.str(width);
}

std::string fit_text(const StepFit& fit, size_t width) {
  TextTable table({"measured step", "measured", "predicted", "error", ""});
  for (const auto& s : fit.steps)
    table.add_row(
        {s.step.name(), seconds_text(s.step.seconds), seconds_text(s.predicted), percent_text(s.error()), s.was_fitted ? "fitted" : ""});
  const auto unfitted = unfitted_of(fit);
  std::string out = table.str(width) + "\n";
  if (unfitted == 0)
    return out + "no step was kept to check the fit; hint: a column use, with check in the rows that are not to be fitted\n";
  out += std::to_string(unfitted) + " steps that were not fitted" + (fit.by_parts ? " (each fifth from the others)" : "") +
         ": mean error " + percent_text(fit.mean_error()) + ", largest " + percent_text(fit.largest_error()) + "\n";
  return out;
}

// Combines rows with the same text into one sentence.
std::string beyond_text(const Plan& plan) {
  std::vector<std::string> different;
  for (const auto& s : plan.steps)
    if (!s.beyond.empty() && std::find(different.begin(), different.end(), s.beyond) == different.end()) different.push_back(s.beyond);
  std::string out;
  for (const auto& beyond : different) {
    std::vector<std::string> rows;
    for (const auto& s : plan.steps)
      if (s.beyond == beyond && (rows.empty() || rows.back() != with_commas(s.placement.ranks)))
        rows.push_back(with_commas(s.placement.ranks));
    out += "extrapolation beyond the measured steps: " + beyond + " (at " + join(rows) + ")\n";
  }
  return out;
}

Json json_of(const StepRates& rates) {
  return Json::object({{"flops", rates.flops},
                       {"memory", rates.memory},
                       {"link_share", rates.link_share},
                       {"message_s", rates.message},
                       {"contention", rates.contention},
                       {"carrying_s", rates.carrying}});
}

Json json_of(const PlannedStep& s) {
  return Json::object({{"ranks", s.placement.ranks},
                       {"strategy", s.placement.strategy},
                       {"shard_size", s.placement.shards()},
                       {"group_size", s.placement.group_size},
                       {"step_s", s.time.seconds},
                       {"compute_s", s.time.compute},
                       {"communication_s", s.time.communication},
                       {"waiting", s.time.waiting()},
                       {"sent_bytes", s.time.sent_bytes},
                       {"between_bytes", s.time.between_bytes},
                       {"samples_per_s", s.samples_per_second},
                       {"efficiency", s.efficiency},
                       {"memory", s.memory},
                       {"fits", s.fits},
                       {"best", s.is_best},
                       {"extrapolation", s.beyond}});
}

Json json_of(const StepFit& fit) {
  auto steps = Json::array();
  for (const auto& s : fit.steps)
    steps.push_back(Json::object({{"step", s.step.name()},
                                  {"measured_s", s.step.seconds},
                                  {"predicted_s", s.predicted},
                                  {"error", s.error()},
                                  {"fitted", s.was_fitted}}));
  return Json::object({{"steps", steps}, {"mean_error", fit.mean_error()}, {"largest_error", fit.largest_error()}});
}

}  // namespace

std::string to_text(const Plan& plan, size_t width) {
  auto out = verdict_of(plan) + "\n" + basis_text(plan);
  if (plan.fit) out += "\n" + fit_text(*plan.fit, width);
  if (!plan.steps.empty()) out += "\n" + table_of(plan, width);
  if (const auto beyond = beyond_text(plan); !beyond.empty()) out += "\n" + beyond;
  for (const auto& note : plan.notes) out += "\n" + note + "\n";
  return out;
}

Json to_json(const Plan& plan) {
  auto steps = Json::array(), notes = Json::array();
  for (const auto& s : plan.steps) steps.push_back(json_of(s));
  for (const auto& note : plan.notes) notes.push_back(note);
  return Json::object({{"model", plan.model},
                       {"batch_size", plan.work.batch},
                       {"micro_batches", plan.work.micro_batches},
                       {"flops_per_sample", plan.work.flops},
                       {"rates", json_of(plan.rates)},
                       {"memory_limit", plan.memory_limit},
                       {"steps", steps},
                       {"fit", plan.fit ? json_of(*plan.fit) : Json()},
                       {"notes", notes}});
}

}  // namespace npu_train
