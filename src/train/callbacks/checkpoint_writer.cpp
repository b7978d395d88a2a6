#include "train/callbacks/checkpoint_writer.hpp"

#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "train/rank_generators.hpp"

namespace npu_train::detail {

bool all_finite(const ParameterSet& parameters) {
  const at::NoGradGuard no_grad;
  for (const auto& p : parameters)
    if (!at::isfinite(p.value.detach().sum()).item<bool>() && !at::isfinite(p.value.detach()).all().item<bool>()) return false;
  return true;
}

void CheckpointWriter::check_finite() const {
  bool finite = true;
  for (const auto& one : run_.optimizers) finite = finite && all_finite(one.optimizer->parameters());
  if (run_.strategy.ranks().any(!finite)) run_.not_finite();
}

bool CheckpointWriter::writes() const { return run_.enabled && run_.strategy.ranks().of_main(run_.store != nullptr); }

RunState CheckpointWriter::state_of_ranks(StateSlices& own) const {
  auto generators = generators_of_ranks(run_.strategy.ranks());
  if (!run_.strategy.ranks().is_main() && !run_.strategy.writes_parts()) return {};
  auto out = run_.state(own);
  out["rng"] = std::move(generators);
  return out;
}

void CheckpointWriter::begin_parts(const CheckpointMeta& meta, bool async) {
  StateSlices slices;
  const auto state = state_of_ranks(slices);
  shared_meta_ = meta;
  parts_were_asked_ = parts_are_written_ = false;
  shared_.begin(run_.strategy.ranks().is_main() ? run_.store->open(meta) : nullptr, state, slices, run_.config, async);
}

std::string CheckpointWriter::finish_parts() {
  const auto folder = shared_.finish();
  return folder != nullptr ? run_.store->commit(*folder, shared_meta_) : "";
}

void CheckpointWriter::note_parts(bool some_rank_is_writing) {
  // Before a step, each rank reports whether it is writing, and in the step the ranks agree on these reports. The agreement therefore
  // counts only if the writing had begun before the report.
  parts_are_written_ = parts_were_asked_ && !some_rank_is_writing;
  parts_were_asked_ = shared_.under_way();
}

void CheckpointWriter::settle_parts() {
  try {
    if (shared_.under_way()) finish(/*wait=*/true);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Checkpoint) throw;
    if (run_.strategy.ranks().is_main()) log_warning("a checkpoint could not be written: ", e.what());
  }
}

std::string CheckpointWriter::save() {
  if (!writes()) return "";
  finish(/*wait=*/true);
  return run_.observers.run(Phase::Checkpoint, run_.step.attempts(), 0, [&] {
    check_finite();
    const auto meta = run_.meta();
    const bool is_main = run_.strategy.ranks().is_main();
    std::string path;
    if (run_.strategy.writes_parts()) {
      begin_parts(meta, /*async=*/false);
      path = finish_parts();
    } else {
      StateSlices none;
      const auto state = state_of_ranks(none);
      if (is_main) path = run_.store->save(state, meta, run_.config);
    }
    run_.strategy.ranks().barrier();  // waits until every rank can see the file
    note(meta);
    if (is_main) run_.written(path);
    return path;
  });
}

void CheckpointWriter::begin() {
  if (!run_.async) {
    save();
    return;
  }
  if (!writes()) return;
  finish(/*wait=*/true);
  run_.observers.run(Phase::Checkpoint, run_.step.attempts(), 0, [&] {
    check_finite();
    const auto meta = run_.meta();
    if (run_.strategy.writes_parts()) {
      begin_parts(meta, /*async=*/true);
    } else {
      StateSlices none;
      const auto state = state_of_ranks(none);
      if (run_.strategy.ranks().is_main()) run_.store->save_later(state, meta, run_.config);
    }
    note(meta);
  });
}

void CheckpointWriter::finish(bool wait) {
  std::string path;
  try {
    if (shared_.under_way()) {
      if (wait || parts_are_written_) path = finish_parts();
    } else if (run_.store != nullptr) {
      path = run_.store->finish(wait);
    }
  } catch (...) {
    saved_at_ = -1;  // forgets the checkpoint, which was not saved
    throw;
  }
  if (!path.empty()) run_.written(path);
}

std::string CheckpointWriter::save_diverged() {
  const bool is_main = run_.strategy.ranks().is_main(), in_parts = run_.strategy.writes_parts();
  if (in_parts ? !writes() : run_.store == nullptr || !is_main) return "";
  try {
    StateSlices slices;
    const auto state = run_.state(slices);
    const auto meta = run_.meta();
    auto folder = is_main ? run_.store->open_diverged() : nullptr;
    if (in_parts) {
      shared_.begin(std::move(folder), state, slices, run_.config, /*async=*/false);
      folder = shared_.finish();
    } else {
      folder->write(state, run_.config);
    }
    return folder != nullptr ? run_.store->commit_diverged(*folder, meta) : "";
  } catch (const Error& e) {
    log_warning("the broken state cannot be kept: ", e.what());
    return "";
  }
}

void CheckpointWriter::note(const CheckpointMeta& meta) {
  saved_at_ = run_.step.attempts();
  without_score_ = std::isnan(meta.score);
}

bool CheckpointWriter::has(int64_t attempts, double score) const { return saved_at_ == attempts && (!without_score_ || std::isnan(score)); }

}  // namespace npu_train::detail
