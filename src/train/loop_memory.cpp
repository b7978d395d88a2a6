// trainer.on_oom: a window that does not fit is run again in smaller micro-batches.
#include <algorithm>

#include "loop_impl.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/without_hint.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/device/transfer.hpp"

namespace npu_train {
namespace {

int64_t largest_of(const std::vector<Batch>& batches) {
  int64_t rows = 0;
  for (const auto& b : batches) rows = std::max(rows, b.rows());
  return rows;
}

// As a loader with batches of `limit` would have given them; padding alone is left out.
std::vector<Batch> in_pieces(const std::vector<Batch>& window, int64_t limit) {
  if (limit == 0 || largest_of(window) <= limit) return window;
  std::vector<Batch> out;
  for (const auto& batch : window)
    for (int64_t first = 0; first < batch.rows() && (first == 0 || first < batch.size); first += limit)
      out.push_back(batch.narrow(first, std::min(limit, batch.rows() - first)));
  return out;
}

}  // namespace

const char* work_name(Phase phase) { return phase == Phase::Transfer ? "copy to the device" : phase_name(phase); }

// For a report; to be called from a handler of exceptions.
void TrainLoop::note_out_of_memory(FailedWindow failed) {
  if (translate_current_exception("Trainer").kind() == ErrorKind::OutOfMemory) failed_ = std::move(failed);
}

// The newest micro-batch to the device. Where there is no room for it the window goes back to the host, with on_oom=retry: from then on
// each micro-batch is copied when its turn comes, and is cut where it still does not fit.
void TrainLoop::copy_newest(std::vector<Batch>& window, int64_t micro_batches) {
  if (copies_late_) {
    window.back() = to_device(window.back(), Device{}, /*non_blocking=*/false);  // what is pending is done for the batch as a whole
    return;
  }
  const auto micro = static_cast<int>(window.size()) - 1;
  try {
    window.back() = observers_.run(Phase::Transfer, step_->attempts(), micro, [&] { return to_device(window.back(), parts_.device); });
    return;
  } catch (...) {
    const auto error = translate_current_exception("Trainer");
    if (error.kind() != ErrorKind::OutOfMemory) throw;
    if (options_.on_oom != "retry") {
      failed_ =
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

void TrainLoop::leave_on_host(std::vector<Batch>& window) {
  copies_late_ = true;
  for (auto& batch : window) batch = to_device(batch, Device{}, /*non_blocking=*/false);
  backend_of(parts_.device).empty_cache(parts_.device);
}

// What a full window weighs over all ranks, however it is cut. A batch that is a window by itself is its own measure, as is a longer window
// than the options know, of a program that owns its loop.
double TrainLoop::full_weight(size_t batches) const {
  const auto micro_batches = options_.accumulate_grad_batches * parts_.strategy->world_size();
  const bool own_window = static_cast<int64_t>(batches) > options_.accumulate_grad_batches;
  if (parts_.train_loader == nullptr || own_window || (micro_batches == 1 && micro_batch_limit_ == 0)) return 0;
  return parts_.task->weight_of(parts_.train_loader->options().batch_size) * static_cast<double>(micro_batches);
}

StepResult TrainLoop::run_window(std::vector<Batch>& window) {
  failed_.reset();
  const bool retries = options_.on_oom == "retry";
  const State random = retries ? rng_state() : State{};
  const auto limit = micro_batch_limit_;
  std::optional<Error> failure;
  for (;;) {
    auto batches = in_pieces(window, micro_batch_limit_);
    bool out_of_memory = false;
    try {
      auto result = step_->run(batches, full_weight(window.size()));
      failed_.reset();
      return result;
    } catch (...) {
      const auto error = translate_current_exception("Trainer");
      out_of_memory = error.kind() == ErrorKind::OutOfMemory;
      if (out_of_memory) failure.emplace(error);
      if (!failure) throw;  // else the model cannot take so small a batch, as BatchNorm one value: what began it is told
    }
    const bool whole = step_->phase() < Phase::Optimizer;  // else parameters may be half updated
    if (out_of_memory)
      failed_ = FailedWindow{.batches = batches,
                             .phase = step_->phase(),
                             .micro_batch = step_->micro_batch(),
                             .micro_batches = static_cast<int>(batches.size()),
                             .on_host = copies_late_};
    if (retries && whole) {
      step_->undo_window();
      set_rng_state(random);
    }
    const bool may_go_on = retries && whole && out_of_memory;
    if (may_go_on && !copies_late_ && largest_of(batches) <= 1) {  // what the window holds itself is left to gain
      log_warning(
          "out of memory in micro-batches of 1 sample, beside the batches of the window: trainer.on_oom=retry leaves windows on the host "
          "from now on, copies each micro-batch when it is run, and begins again with whole ones");
      failed_.reset();
      batches.clear();
      micro_batch_limit_ = limit;
      leave_on_host(window);
      continue;
    }
    if (!may_go_on || !shrink_micro_batches(batches, *failure)) {
      micro_batch_limit_ = limit;
      throw *failure;
    }
    backend_of(parts_.device).empty_cache(parts_.device);
  }
}

// False where they cannot become smaller.
bool TrainLoop::shrink_micro_batches(const std::vector<Batch>& batches, const Error& failure) {
  const auto rows = largest_of(batches);
  if (rows <= 1) return false;
  micro_batch_limit_ = (rows + 1) / 2;
  const auto loaded = parts_.train_loader != nullptr ? parts_.train_loader->options().batch_size : rows;
  const auto all = loaded * options_.accumulate_grad_batches;
  log_warning("out of memory in the ", work_name(step_->phase()), " of micro-batch ", step_->micro_batch() + 1, " of ", batches.size(),
              ": trainer.on_oom=retry repeats the window, and runs all later ones, in micro-batches of ", micro_batch_limit_,
              all % micro_batch_limit_ == 0 ? c10::str("; to begin so: data.batch_size=", micro_batch_limit_,
                                                       " trainer.accumulate_grad_batches=", all / micro_batch_limit_)
                                            : std::string(),
              "; it was: ", without_hint(failure.what()));
  return true;
}

}  // namespace npu_train
