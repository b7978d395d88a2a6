#include "train/callbacks/memory_retry.hpp"

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/device/transfer.hpp"

namespace npu_train {

const char* work_name(Phase phase) { return phase == Phase::Transfer ? "copy to the device" : phase_name(phase); }

namespace detail {
namespace {

int64_t largest_of(const std::vector<Batch>& batches) {
  int64_t rows = 0;
  for (const auto& b : batches) rows = std::max(rows, b.rows());
  return rows;
}

// Returns the batches that a loader with batch size `limit` would have made; batches that contain only padding are omitted.
std::vector<Batch> in_pieces(const std::vector<Batch>& window, int64_t limit) {
  if (limit == 0 || largest_of(window) <= limit) return window;
  std::vector<Batch> out;
  for (const auto& batch : window)
    for (int64_t first = 0; first < batch.rows() && (first == 0 || first < batch.size); first += limit)
      out.push_back(batch.narrow(first, std::min(limit, batch.rows() - first)));
  return out;
}

}  // namespace

void MemoryRetry::copy_newest(std::vector<Batch>& window, int64_t micro_batches) {
  if (copies_late_) {
    window.back() = to_device(window.back(), Device{}, /*non_blocking=*/false);  // pending transforms need the complete batch
    return;
  }
  const auto micro = static_cast<int>(window.size()) - 1;
  try {
    window.back() = run_.observers.run(Phase::Transfer, run_.step.attempts(), micro, [&] { return to_device(window.back(), run_.device); });
    return;
  } catch (...) {
    const auto error = translate_current_exception("Trainer");
    if (error.kind() != ErrorKind::OutOfMemory) throw;
    if (!run_.enabled) {
      run_.failed =
          FailedWindow{.batches = window, .phase = Phase::Transfer, .micro_batch = micro, .micro_batches = static_cast<int>(micro_batches)};
      throw;
    }
    log_warning(
        "out of memory in the copy of micro-batch ", micro + 1, " of ", micro_batches,
        " to the device: trainer.on_oom=retry leaves windows on the host from now on, and copies each micro-batch when it is run; it"
        " was: ",
        without_hint(error.what()));
  }
  leave_on_host(window);
}

void MemoryRetry::leave_on_host(std::vector<Batch>& window) {
  copies_late_ = true;
  for (auto& batch : window) batch = to_device(batch, Device{}, /*non_blocking=*/false);
  backend_of(run_.device).empty_cache(run_.device);
}

StepResult MemoryRetry::run(std::vector<Batch>& window) {
  run_.failed.reset();
  const bool retries = run_.enabled;
  const State random = retries ? rng_state() : State{};
  const auto limit = limit_;
  std::optional<Error> failure;
  for (;;) {
    auto batches = in_pieces(window, limit_);
    bool out_of_memory = false;
    try {
      auto result = run_.step.run(batches, full_weight(window.size()));
      run_.failed.reset();
      // Counts the loader's batches, not the pieces.
      result.micro_batches += static_cast<int64_t>(window.size()) - static_cast<int64_t>(batches.size());
      return result;
    } catch (...) {
      const auto error = translate_current_exception("Trainer");
      out_of_memory = error.kind() == ErrorKind::OutOfMemory;
      if (out_of_memory) failure.emplace(error);
      if (!failure) throw;  // otherwise the model rejects a batch this small, as BatchNorm rejects one value: reports `failure`
    }
    const bool whole = run_.step.phase() < Phase::Optimizer;  // from the optimizer on, some parameters may be updated already
    if (out_of_memory)
      run_.failed = FailedWindow{.batches = batches,
                                 .phase = run_.step.phase(),
                                 .micro_batch = run_.step.micro_batch(),
                                 .micro_batches = static_cast<int>(batches.size()),
                                 .on_host = copies_late_};
    if (retries && whole) {
      run_.step.undo_window();
      set_rng_state(random);
    }
    const bool may_go_on = retries && whole && out_of_memory;
    if (may_go_on && !copies_late_ && largest_of(batches) <= 1) {  // all that is left is to move the window's batches to the host
      log_warning(
          "out of memory in micro-batches of 1 sample, with the batches of the window on the device: trainer.on_oom=retry leaves windows "
          "on the host "
          "from now on, copies each micro-batch when it is run, and begins again with full ones");
      run_.failed.reset();
      batches.clear();
      limit_ = limit;
      leave_on_host(window);
      continue;
    }
    if (!may_go_on || !shrink(batches, *failure)) {
      limit_ = limit;
      throw *failure;
    }
    backend_of(run_.device).empty_cache(run_.device);
  }
}

// Returns the weight of a full window over all ranks, however it is divided. Returns 0, so that each window counts as full, for a window of
// one batch, and for a program that owns its loop and gives longer windows than the options say.
double MemoryRetry::full_weight(size_t batches) const {
  const auto micro_batches = run_.accumulate * run_.ranks;
  const bool own_window = static_cast<int64_t>(batches) > run_.accumulate;
  if (run_.train_loader == nullptr || own_window || (micro_batches == 1 && limit_ == 0)) return 0;
  return run_.task.weight_of(run_.train_loader->options().batch_size) * static_cast<double>(micro_batches);
}

// Halves the limit. Returns false if the batches cannot become smaller.
bool MemoryRetry::shrink(const std::vector<Batch>& batches, const Error& failure) {
  const auto rows = largest_of(batches);
  if (rows <= 1) return false;
  limit_ = (rows + 1) / 2;
  const auto loaded = run_.train_loader != nullptr ? run_.train_loader->options().batch_size : rows;
  const auto all = loaded * run_.accumulate;
  log_warning("out of memory in the ", work_name(run_.step.phase()), " of micro-batch ", run_.step.micro_batch() + 1, " of ",
              batches.size(), ": trainer.on_oom=retry repeats the window, and runs all later ones, in micro-batches of ", limit_,
              all % limit_ == 0 ? str_cat("; to begin so: data.batch_size=", limit_, " trainer.accumulate_grad_batches=", all / limit_)
                                : std::string(),
              "; it was: ", without_hint(failure.what()));
  return true;
}

void MemoryRetry::load_state(const State& state) {
  limit_ = state.values.count("micro_batch_limit") > 0 ? state.integer("micro_batch_limit", "loop") : 0;  // older checkpoints have none
}

}  // namespace detail
}  // namespace npu_train
