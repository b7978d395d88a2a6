#include "train/callbacks/divergence.hpp"

#include <cmath>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {

void Divergence::note_step(bool taken) {
  skip_streak_ = taken ? 0 : skip_streak_ + 1;
  if (!taken) return;
  overflow_cause_.clear();
  overflow_remedy_.clear();
}

void Divergence::note_overflow(const OverflowReport& report) {
  overflow_cause_ = report.source.str();
  overflow_remedy_ = join(report.advice, "; or ");
  log_warning("overflow explained (attempt ", report.attempt, "): ", overflow_cause_,
              report.advice.empty() ? "" : "; hint: " + report.advice.front());
}

std::optional<Divergence::Finding> Divergence::check(const StepReport& report, bool at_floor, bool has_floor) const {
  const auto at_step = [&] { return str_cat("step ", report.attempt, " (epoch ", report.epoch, ")"); };
  if (!report.taken) {
    if (!at_floor || skip_streak_ < most_skips_) return std::nullopt;
    return Finding{
        str_cat("gradients overflowed ", skip_streak_, " times in a row and the loss scale ",
                has_floor ? "is at its floor of " : "stays at ", report.loss_scale, has_floor ? "" : " (grad_scaler.dynamic: false)",
                ", at ", at_step(), overflow_cause_.empty() ? "" : "; cause: " + overflow_cause_),
        overflow_remedy_.empty() ? "lower the learning rate, clip gradients, or train in bf16-mixed or 32-true" : overflow_remedy_};
  }
  const double loss = scalar_or(report.metrics, "loss", 0);
  if (std::isfinite(loss)) return std::nullopt;
  return Finding{str_cat("the loss is ", loss, " at ", at_step()),
                 "lower the learning rate, add warm-up or gradient_clip_val, and check the data for non-finite values"};
}

std::string Rollback::target(const CheckpointStore* store) const {
  if (!enabled_ || done_ >= kMost) return "";
  return ranks_.from_main(store != nullptr && ranks_.is_main() ? store->newest_valid() : "");
}

void Rollback::diverged(const Divergence::Finding& found, const CheckpointStore* store, const std::function<std::string()>& keep) const {
  const auto where = target(store).empty() ? ranks_.from_main(keep()) : "";
  throw Error(ErrorKind::Diverged, "Trainer",
              "training diverged: " + found.cause + (where.empty() ? "" : "; the broken state is in " + where), found.remedy);
}

bool Rollback::run(const Error& cause, const CheckpointStore* store, LearningRate& rate,
                   const std::function<void(const std::string& path)>& load) {
  const auto path = target(store);
  if (path.empty()) return false;
  const auto done = done_ + 1;
  const auto factor = rate.factor() * 0.1;
  if (ranks_.is_main()) log_warning(cause.what(), "; rolling back to ", path, " with the learning rate times ", factor);
  load(path);
  done_ = done;
  rate.set_factor(factor);
  return true;
}

}  // namespace npu_train::detail
