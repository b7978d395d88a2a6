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
  if (run_.strategy.any(!all_finite(run_.optimizer.parameters()))) run_.not_finite();
}

bool CheckpointWriter::writes() const { return run_.enabled && run_.strategy.of_main(run_.store != nullptr); }

// Complete on the main rank; the others give their shards to it, if there are any.
RunState CheckpointWriter::state_of_main() const { return run_.strategy.is_main() || run_.strategy.shards() ? run_.state() : RunState(); }

RunState CheckpointWriter::state_of_ranks() const {
  auto generators = generators_of_ranks(run_.strategy);
  auto out = state_of_main();
  if (!run_.strategy.is_main()) return {};
  out["rng"] = std::move(generators);
  return out;
}

std::string CheckpointWriter::save() {
  if (!writes()) return "";
  finish(/*wait=*/true);
  return run_.observers.run(Phase::Checkpoint, run_.step.attempts(), 0, [&] {
    check_finite();
    const auto meta = run_.meta();
    const bool is_main = run_.strategy.is_main();
    const auto state = state_of_ranks();
    const auto path = is_main ? run_.store->save(state, meta, run_.config) : std::string();
    run_.strategy.barrier();  // the file is there for every rank
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
    const auto state = state_of_ranks();
    if (run_.strategy.is_main()) run_.store->save_later(state, meta, run_.config);
    note(meta);
  });
}

void CheckpointWriter::finish(bool wait) {
  if (run_.store == nullptr) return;
  std::string path;
  try {
    path = run_.store->finish(wait);
  } catch (...) {
    saved_at_ = -1;  // the state was not saved
    throw;
  }
  if (!path.empty()) run_.written(path);
}

std::string CheckpointWriter::save_diverged() {
  const bool is_main = run_.strategy.is_main();
  if (run_.strategy.shards() ? !writes() : run_.store == nullptr || !is_main) return "";
  try {
    const auto state = state_of_main();
    return is_main ? run_.store->save_diverged(state, run_.meta(), run_.config) : "";
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
