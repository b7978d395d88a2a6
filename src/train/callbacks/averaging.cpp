#include "train/callbacks/averaging.hpp"

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"

namespace npu_train::detail {

Averaging::Averaging(WeightAverage* average, const Optimizer& optimizer, const TrainerOptions& limits)
    : average_(average), optimizer_(optimizer), max_epochs_(limits.max_epochs), max_steps_(limits.max_steps) {
  if (is("swa") && max_epochs_ <= 0 && max_steps_ <= 0)
    check(average->options().start >= 1, ErrorKind::Usage, "average.start", average->options().start,
          " is a share of the run, whose length is not known; allowed: a number of epochs, at least 1; hint: or set trainer.max_epochs or "
          "trainer.max_steps");
}

// If both limits are set, the averages begin at their share of the limit that ends the run first.
bool Averaging::has_begun(int64_t epoch, int64_t global_step) const {
  const auto& options = average_->options();
  const double start = options.start;
  if (start >= 1) return static_cast<double>(epoch) >= start;
  const auto passed = [&](int64_t at, int64_t length) { return length > 0 && at >= options.before_averages(length); };
  return passed(epoch, max_epochs_) || passed(global_step, max_steps_);
}

void Averaging::note_step(int64_t epoch, int64_t global_step) {
  if (is("checkpoints") && average_->updates() > 0) average_->reset();  // a resumed run still has the average from its previous end
  if (!is("swa")) return;
  // This run may continue a shorter one, whose averages began before the step at which this run begins its own.
  if (average_->updates() > 0 && !has_begun(epoch, global_step)) {
    log_warning(
        "average.kind=swa: the averages of the checkpoint are discarded, because in this longer run they begin later (average.start)");
    average_->reset();
    judged_ = false;
  }
  if (average_->options().every == 0) return;
  if (global_step % average_->options().every == 0 && has_begun(epoch, global_step)) add(optimizer_.parameters(), global_step);
}

// If a stop ended the validation of an epoch, the end of the epoch is repeated. The weights of the epoch must count only once.
void Averaging::note_epoch(int64_t epoch, int64_t global_step) {
  if (!is("swa") || average_->options().every > 0 || averaged_step_ == global_step) return;
  if (has_begun(epoch, global_step)) add(optimizer_.parameters(), global_step);
}

void Averaging::add(const ParameterSet& values, int64_t global_step) {
  average_->update(values);
  averaged_step_ = global_step;
  judged_ = false;
}

int64_t Averaging::wanted_checkpoints(int64_t global_step) const {
  return is("checkpoints") && averaged_step_ != global_step ? average_->options().last : 0;
}

State Averaging::state() const {
  if (!is_updated_here()) return {};
  return {{}, {{"averaged_step", averaged_step_}, {"statistics_step", statistics_step_}, {"averages_judged", int64_t{judged_}}}};
}

void Averaging::load_state(const State& state) {
  const auto if_there = [&](const char* key) { return state.values.count(key) > 0 ? state.integer(key, "loop") : -1; };
  averaged_step_ = if_there("averaged_step");
  statistics_step_ = if_there("statistics_step");
  judged_ = if_there("averages_judged") == 1;
}

}  // namespace npu_train::detail
