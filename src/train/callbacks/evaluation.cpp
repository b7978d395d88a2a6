#include "train/callbacks/evaluation.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include "npu_train/core/error.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/device/transfer.hpp"
#include "npu_train/train/passes.hpp"
#include "train/batch_statistics.hpp"

namespace npu_train::detail {

// During its lifetime, the task is in evaluation mode (or in training mode), without gradients and with the averaged weights if there are
// any. Afterwards the task is in training mode, with its own weights.
struct Evaluation::Mode {
  explicit Mode(const Context& run, bool training = false) : task(run.task) {
    if (run.average != nullptr && run.average->updates() > 0) {
      AverageSwap::Fill fill;
      if (!run.strategy.shards_parameters())
        fill = [&run](const auto& averages, const auto& model) { run.strategy.gather_slices(averages, model); };
      averaged.emplace(*run.average, fill);
    }
    task.set_training(training);
  }
  ~Mode() { task.set_training(true); }
  at::NoGradGuard no_grad;
  Task& task;
  std::optional<AverageSwap> averaged;
};

// Sums over the batches so far.
struct Evaluation::Sums {
  // Loss times weight, then the sums of the task's metrics, then their counts. They are added in fp64 on the host: sums of fp32 values of
  // similar size are exact there, and do not depend on how the batches are divided among ranks.
  std::vector<double> packed;
  std::vector<at::Tensor> on_device;  // numbers of the newest batches, fp32, not yet added to `packed`
  double weight = 0;
  std::vector<at::Tensor> rows;  // for EpochMetrics, fp32 on the host

  void read() {
    if (on_device.empty()) return;
    const auto numbers = at::stack(on_device).to(at::kCPU).to(at::kDouble);
    packed.resize(static_cast<size_t>(numbers.size(1)));
    for (int64_t i = 0; i < numbers.size(0); ++i)
      for (size_t k = 0; k < packed.size(); ++k)
        packed[k] += numbers.const_data_ptr<double>()[i * numbers.size(1) + static_cast<int64_t>(k)];
    on_device.clear();
  }
};

// Keeps the batch for a report if memory has run out; called from an exception handler.
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
  const auto output = validation_output(run_.task, run_.precision, here);
  auto packed = output.loss.detach().to(at::kFloat).reshape({1});
  packed = output.weight > 0 ? packed * output.weight : at::zeros_like(packed);
  if (const auto metrics = checked_metric_sums(run_.task, output, here); metrics.defined()) packed = at::cat({packed, metrics});
  sums.on_device.push_back(packed);
  if (const auto* task = dynamic_cast<const EpochMetrics*>(&run_.task); task != nullptr && !task->epoch_metric_names().empty()) {
    sums.rows.push_back(task->epoch_rows(output, here).detach().to(at::kCPU, at::kFloat).contiguous());
    check(sums.rows.back().dim() == 2 && sums.rows.back().size(1) > 0, ErrorKind::Usage, "EpochMetrics::epoch_rows",
          "gave a tensor of shape ", sums.rows.back().sizes(), "; allowed: [samples, columns]");
  }
  constexpr size_t kUnread = 256;  // limits the memory of unread numbers, and still lets the host run ahead
  if (sums.on_device.size() >= kUnread) sums.read();
  sums.weight += output.weight;
}

// Computes the metrics that need all samples. Their rows are gathered as bytes.
void Evaluation::replace_epoch_metrics(const EpochMetrics& task, const Sums& own, Scalars& averages) {
  const auto names = task.epoch_metric_names();
  if (names.empty()) return;
  auto& ranks = run_.strategy.ranks();
  const at::Tensor mine = own.rows.empty() ? at::Tensor() : at::cat(own.rows);
  const auto of_ranks = ranks.gather(mine.defined() ? std::string(static_cast<const char*>(mine.const_data_ptr()), mine.nbytes()) : "");
  std::vector<double> shares(names.size());
  if (mine.defined()) {
    const auto row_bytes = static_cast<size_t>(mine.size(1)) * sizeof(float);
    size_t bytes = 0, before = 0;
    for (size_t r = 0; r < of_ranks.size(); ++r) {
      check(of_ranks[r].size() % row_bytes == 0, ErrorKind::Peer, "Trainer::validate", "rank ", r, " gave ", of_ranks[r].size(),
            " bytes for epoch metrics, which are not rows of ", row_bytes, "; hint: all ranks must run the same program");
      if (static_cast<int>(r) == ranks.rank()) before = bytes;
      bytes += of_ranks[r].size();
    }
    const auto all = at::empty({static_cast<int64_t>(bytes / row_bytes), mine.size(1)}, at::kFloat);
    auto* to = static_cast<char*>(all.mutable_data_ptr());
    for (const auto& of_rank : of_ranks) to = std::copy(of_rank.begin(), of_rank.end(), to);
    shares = task.epoch_sums(all, static_cast<int64_t>(before / row_bytes), mine.size(0));
  }
  shares.push_back(mine.defined() ? static_cast<double>(mine.size(0)) : 0);
  shares = ranks.sums(std::move(shares));
  const double samples = std::max(1.0, shares.back());
  for (size_t i = 0; i < names.size(); ++i) {
    const auto value = shares[i] / samples;
    const auto of_batches = std::find_if(averages.begin(), averages.end(), [&](const auto& one) { return one.first == names[i]; });
    if (of_batches != averages.end())
      of_batches->second = value;
    else
      averages.emplace_back(names[i], value);
  }
}

// Returns the averages over all ranks; nullopt if one of them was stopped.
std::optional<Scalars> Evaluation::averages(Sums& own, bool stopped) {
  enum : size_t { kStopped, kWeight, kPacked };
  const auto names = run_.task.metric_names();
  std::vector<double> sums(kPacked + 1 + 2 * names.size());
  sums[kStopped] = stopped ? 1 : 0;
  sums[kWeight] = own.weight;
  if (!stopped) own.read();
  std::copy(own.packed.begin(), own.packed.end(), sums.begin() + kPacked);
  sums = run_.strategy.ranks().sums(std::move(sums));
  if (sums[kStopped] > 0) return std::nullopt;
  check(sums[kWeight] > 0, ErrorKind::Data, "Trainer::validate", "the validation data gave no batch, or none with a target that counts");
  Scalars out{{"loss", sums[kPacked] / sums[kWeight]}};
  for (size_t i = 0; i < names.size(); ++i) out.emplace_back(names[i], sums[kPacked + 1 + i] / sums[kPacked + 1 + names.size() + i]);
  if (const auto* task = dynamic_cast<const EpochMetrics*>(&run_.task)) replace_epoch_metrics(*task, own, out);
  add_metrics_of_loss(run_.task, out);
  return out;
}

// Gives all ranks the running statistics of the main rank; these are the statistics that its checkpoints contain. In training, each rank
// computes the statistics from its own batches.
void Evaluation::share_buffers() {
  std::vector<at::Tensor> buffers;
  for (const auto& [name, buffer] : run_.task.buffers()) buffers.push_back(buffer);
  run_.strategy.broadcast(buffers);
}

bool Evaluation::each_batch(Loader& loader, const Options& options, std::string_view draws,
                            const std::function<void(const Batch& batch, Phase& phase, uint64_t key)>& use) {
  auto* const overfit = options.overfit;
  if (overfit != nullptr) overfit->fill(*options.train_loader);
  auto total = overfit != nullptr ? std::optional(overfit->size()) : loader.rounds_per_epoch();
  if (options.limit >= 0) total = std::min(total.value_or(options.limit), options.limit);
  if (overfit == nullptr) loader.begin_epoch(options.epoch);
  bool stopped = false;
  for (int64_t k = 0;; ++k) {
    const bool within = options.limit < 0 || k < options.limit;
    const auto batch = !within ? std::nullopt : overfit != nullptr ? overfit->at(k) : loader.next();
    stopped = batch && options.stoppable && run_.stop.load(std::memory_order_relaxed);
    if (!run_.strategy.begin_forward(batch && !stopped)) break;
    auto phase = Phase::Transfer;
    const PortableRandom::MicroBatch drawn(draws, options.attempt, run_.strategy.ranks().micro_batch_number(k));
    try {
      use(*batch, phase, drawn.key());
    } catch (...) {
      note_out_of_memory({.batches = {*batch}, .phase = phase, .micro_batch = static_cast<int>(k), .pass = options.pass});
      throw;
    }
    if (options.on_batch) options.on_batch(k + 1, total);
  }
  return !stopped;
}

std::optional<Scalars> Evaluation::run(Loader& loader, const Options& options) {
  run_.failed.reset();
  const Mode mode(run_);
  share_buffers();
  Sums sums;
  const bool complete =
      each_batch(loader, options, "validation", [&](const Batch& batch, Phase& phase, uint64_t) { add(batch, phase, sums); });
  return averages(sums, !complete);
}

// Measures one batch first, which shows whether the network has running statistics; many networks have none.
bool Evaluation::take_statistics(Loader& loader, const Options& options) {
  if (run_.task.buffers().empty()) return true;
  run_.failed.reset();
  auto& ranks = run_.strategy.ranks();
  const auto random = rng_state(), position = loader.state();
  const auto epoch = loader.epoch(), cursor = loader.cursor();
  bool complete = true;
  {
    const Mode mode(run_, /*training=*/true);
    BatchStatistics statistics(run_.task.buffers());
    const auto measure = [&](int64_t limit) {
      auto limited = options;
      limited.limit = limit;
      complete = each_batch(loader, limited, "statistics", [&](const Batch& batch, Phase& phase, uint64_t key) {
        phase = Phase::Transfer;
        const auto here = to_device(batch, run_.device);
        phase = Phase::Forward;
        statistics.collect([&] { training_output(run_.task, run_.precision, here, key); });
      });
    };
    if (options.limit != 0) measure(1);
    const bool some = ranks.any(statistics.any());
    if (some) {
      statistics.begin_again();
      measure(options.limit);
    }
    complete = !ranks.any(!complete);
    if (complete && some) {
      statistics.write(ranks);
      run_.average->take_buffers();
    }
  }
  set_rng_state(random);
  loader.load_state(position);
  loader.begin_epoch(epoch, cursor);
  return complete;
}

}  // namespace npu_train::detail
