// Saves and loads the state of a loop, and gives programs access to its parts.
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/train/monitors.hpp"
#include "train/loop_jobs.hpp"
#include "train/training_state.hpp"

namespace npu_train {

RunState TrainLoop::state() const { return state_with(nullptr); }

RunState TrainLoop::state_with(StateSlices* own) const {
  RunState out;
  detail::save_training(parts_, at_, own, out);
  auto& loop = out["loop"].values;
  loop["attempts"] = step_->attempts();
  loop.merge(jobs_->trained.state().values);
  for (const auto* part : jobs_->with_state()) loop.merge(part->state().values);
  jobs_->callbacks.save(out);
  return out;
}

void TrainLoop::load_state(const RunState& state, const std::vector<std::string>& leave_out) {
  const detail::SavedParts saved(state, leave_out);
  const auto* loop = saved.find("loop");
  // Loaded first, even if the part `loop` is left out, because the other parts belong to the parameters that were trained.
  if (const auto trained = state.find("loop"); trained != state.end()) jobs_->trained.load_state(trained->second);
  detail::load_training(parts_, at_, saved);
  if (loop != nullptr) {
    step_->set_attempts(loop->integer("attempts", "loop"));
    for (auto* part : jobs_->with_state()) part->load_state(*loop);
    if (at_.batch_in_epoch > 0) jobs_->sums.report_other_names(*loop);
  }
  epoch_open_ = false;
  jobs_->writer.loaded(step_->attempts());
  jobs_->pending.reset();
  jobs_->callbacks.load(state, leave_out);
}

void TrainLoop::load_checkpoint(const std::string& dir) {
  if (!parts_.strategy->writes_parts()) return load_state(npu_train::load_checkpoint(dir));
  // The trained parameters decide which slices this rank reads.
  const auto loop = npu_train::load_checkpoint(dir, {"loop"});
  jobs_->trained.load_state(*detail::SavedParts(loop, {}).find("loop"));
  auto own = parts_.optimizer->parameters();
  if (const auto* errors = parts_.strategy->error_feedback())
    for (const auto& slice : errors->state().slices) own.add(slice);
  load_state(npu_train::load_checkpoint(dir, {}, own, parts_.strategy->shards_parameters() ? own : ParameterSet()));
}

CheckpointMeta TrainLoop::meta() const {
  auto out = detail::checkpoint_meta(parts_, at_);
  out.score = jobs_->ranking.score();
  out.monitor = checkpoint_.monitor;
  return out;
}

bool TrainLoop::roll_back(const Error& cause) {
  return jobs_->rollback.run(cause, parts_.store, jobs_->rate, [this](const std::string& path) { load_checkpoint(path); });
}

std::string TrainLoop::save_checkpoint() { return jobs_->writer.save(); }

void TrainLoop::begin_checkpoint() { jobs_->writer.begin(); }

void TrainLoop::set_lr_factor(double factor) { jobs_->rate.set_factor(factor); }

double TrainLoop::lr_factor() const { return jobs_->rate.factor(); }

void TrainLoop::refresh_parameters() {
  check(parts_.optimizers.size() == 1, ErrorKind::Usage, "TrainLoop::refresh_parameters",
        "which parameters are trained cannot change in a task of several optimizers; hint: freeze them before fit()");
  jobs_->trained.refresh();
}

void TrainLoop::add_callback(std::shared_ptr<Callback> callback) { jobs_->callbacks.add(std::move(callback)); }

std::optional<FailedWindow> TrainLoop::take_failed_window() { return std::exchange(jobs_->failed, std::nullopt); }

int64_t TrainLoop::micro_batch_limit() const { return jobs_->memory.limit(); }

std::optional<int64_t> TrainLoop::windows_per_epoch() const { return jobs_->windows.windows_per_epoch(); }

int64_t TrainLoop::windows_done() const { return jobs_->windows.windows_done(at_.batch_in_epoch); }

bool TrainLoop::validates() const { return detail::validates(options_, parts_.val_loader != nullptr); }

bool TrainLoop::validates_epoch() const {
  return validates() && (options_.fast_dev_run || (at_.epoch + 1) % options_.check_val_every_n_epoch == 0);
}

void TrainLoop::set_epoch(int64_t epoch) {
  check(epoch >= 0, ErrorKind::Usage, "Trainer::set_epoch", "the epoch is ", epoch, "; it must be at least 0");
  at_.epoch = epoch;
  at_.batch_in_epoch = 0;
  at_.validated_batch = -1;
  epoch_open_ = false;
}

at::Tensor TrainLoop::predict(const at::Tensor& input) {
  Batch batch;
  batch.set("input", input);
  return translated("Trainer::predict", [&] {
    return jobs_->evaluation.predict(batch, [&](const Batch& here) -> Outputs { return parts_.task->predict(here.input()); }).first();
  });
}

Outputs TrainLoop::predict(const Batch& batch) {
  return translated("Trainer::predict",
                    [&] { return jobs_->evaluation.predict(batch, [&](const Batch& here) { return parts_.task->forward(here); }); });
}

Scalars TrainLoop::validate() { return validate_weights(/*stoppable=*/false).value(); }

Scalars TrainLoop::evaluate(Loader& loader, int64_t limit) {
  return run_validation(loader, limit, Pass::Validation, /*stoppable=*/false).value();
}

}  // namespace npu_train
