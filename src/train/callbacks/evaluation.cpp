#include "train/callbacks/evaluation.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include "npu_train/core/error.hpp"
#include "npu_train/device/portable_random.hpp"
#include "npu_train/device/transfer.hpp"

namespace npu_train::detail {

// Evaluation mode, without gradients and with the EMA's weights if there are any; undone at the end.
struct Evaluation::Mode {
  explicit Mode(const Context& run) : task(run.task) {
    if (run.ema != nullptr && run.ema->updates() > 0) {
      EmaSwap::Fill fill;
      if (!run.strategy.shards_parameters())
        fill = [&run](const auto& averages, const auto& model) { run.strategy.gather_slices(averages, model); };
      averaged.emplace(*run.ema, fill);
    }
    task.set_training(false);
  }
  ~Mode() { task.set_training(true); }
  at::NoGradGuard no_grad;
  Task& task;
  std::optional<EmaSwap> averaged;
};

// Over the batches so far, on the device.
struct Evaluation::Sums {
  // Loss times weight, then the task's metrics. In fp64 on the host: there, sums of like fp32 values are exact, so that they do not depend
  // on how the batches are divided among ranks.
  std::vector<double> packed;
  std::vector<at::Tensor> on_device;  // of the newest batches, fp32
  double weight = 0, samples = 0;

  void read() {
    if (on_device.empty()) return;
    const auto rows = at::stack(on_device).to(at::kCPU).to(at::kDouble);
    packed.resize(static_cast<size_t>(rows.size(1)));
    for (int64_t i = 0; i < rows.size(0); ++i)
      for (size_t k = 0; k < packed.size(); ++k) packed[k] += rows.const_data_ptr<double>()[i * rows.size(1) + static_cast<int64_t>(k)];
    on_device.clear();
  }
};

// For a report; to be called from a handler of exceptions.
void Evaluation::note_out_of_memory(FailedWindow failed) {
  if (translate_current_exception("Trainer").kind() == ErrorKind::OutOfMemory) run_.failed = std::move(failed);
}

Outputs Evaluation::predict(const Batch& batch, const std::function<Outputs(const Batch&)>& forward) {
  run_.failed.reset();
  const Mode mode(run_);
  auto phase = Phase::Transfer;
  try {
    const auto here = run_.precision.cast_input(to_device(batch, run_.device));
    phase = Phase::Forward;
    run_.strategy.begin_forward(true);
    const auto scope = run_.precision.forward_scope();
    auto fields = forward(here).fields();
    for (auto& [name, tensor] : fields) tensor = tensor.to(at::kCPU, at::kFloat);
    run_.strategy.begin_forward(false);
    return Outputs(std::move(fields));
  } catch (...) {
    note_out_of_memory({.batches = {batch}, .phase = phase, .pass = Pass::Prediction});
    throw;
  }
}

void Evaluation::add(const Batch& batch, Phase& phase, Sums& sums) {
  phase = Phase::Transfer;
  const auto here = to_device(batch, run_.device);
  phase = Phase::Forward;
  const auto scope = run_.precision.forward_scope();
  const auto output = run_.task.validation_step(run_.precision.cast_input(here));
  check_output(output, "Trainer::validate");
  auto packed = output.loss.detach().to(at::kFloat).reshape({1});
  packed = output.weight > 0 ? packed * output.weight : at::zeros_like(packed);
  if (const auto metrics = checked_metric_sums(run_.task, output, here); metrics.defined()) packed = at::cat({packed, metrics});
  sums.on_device.push_back(packed);
  constexpr size_t kUnread = 256;  // bounds their memory, and lets the host run ahead
  if (sums.on_device.size() >= kUnread) sums.read();
  sums.weight += output.weight;
  sums.samples += static_cast<double>(here.size);
}

// The one agreement of a validation.
std::optional<Scalars> Evaluation::averages(Sums& own, bool stopped) {
  enum : size_t { kStopped, kWeight, kSamples, kPacked };
  const auto names = run_.task.metric_names();
  std::vector<double> sums(kPacked + 1 + names.size());
  sums[kStopped] = stopped ? 1 : 0;
  sums[kWeight] = own.weight;
  sums[kSamples] = own.samples;
  if (!stopped) own.read();
  std::copy(own.packed.begin(), own.packed.end(), sums.begin() + kPacked);
  sums = run_.strategy.sums(std::move(sums));
  if (sums[kStopped] > 0) return std::nullopt;
  check(sums[kWeight] > 0, ErrorKind::Data, "Trainer::validate", "the validation data gave no batch");
  Scalars out{{"loss", sums[kPacked] / sums[kWeight]}};
  for (size_t i = 0; i < names.size(); ++i) out.emplace_back(names[i], sums[kPacked + 1 + i] / sums[kSamples]);
  add_metrics_of_loss(run_.task, out);
  return out;
}

// Running statistics are of each rank's own batches: all validate the model of the main rank, which is what its checkpoints contain.
void Evaluation::share_buffers() {
  std::vector<at::Tensor> buffers;
  for (const auto& [name, buffer] : run_.task.buffers()) buffers.push_back(buffer);
  run_.strategy.broadcast(buffers);
}

std::optional<Scalars> Evaluation::run(Loader& loader, const Options& options) {
  run_.failed.reset();
  const Mode mode(run_);
  share_buffers();
  auto* const overfit = options.overfit;
  if (overfit != nullptr) overfit->fill(*options.train_loader);
  auto total = overfit != nullptr ? std::optional(overfit->size()) : loader.rounds_per_epoch();
  if (options.limit >= 0) total = std::min(total.value_or(options.limit), options.limit);
  if (overfit == nullptr) loader.begin_epoch(0);
  Sums sums;
  bool stopped = false;
  for (int64_t k = 0;; ++k) {
    const bool within = options.limit < 0 || k < options.limit;
    const auto batch = !within ? std::nullopt : overfit != nullptr ? overfit->at(k) : loader.next();
    stopped = batch && options.stoppable && run_.stop.load(std::memory_order_relaxed);
    if (!run_.strategy.begin_forward(batch && !stopped)) break;
    auto phase = Phase::Transfer;
    const PortableRandom::MicroBatch draws("validation", options.attempt, run_.strategy.micro_batch_number(k));
    try {
      add(*batch, phase, sums);
    } catch (...) {
      note_out_of_memory({.batches = {*batch}, .phase = phase, .micro_batch = static_cast<int>(k), .pass = options.pass});
      throw;
    }
    if (options.on_batch) options.on_batch(k + 1, total);
  }
  return averages(sums, stopped);
}

}  // namespace npu_train::detail
