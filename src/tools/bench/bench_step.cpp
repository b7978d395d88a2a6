#include "tools/bench/bench_step.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "moved_bytes.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/live_bytes.hpp"
#include "npu_train/device/run_backward.hpp"
#include "npu_train/device/transfer.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/nn/summary.hpp"
#include "npu_train/tools/runs/proof_runs.hpp"
#include "npu_train/train/loop.hpp"
#include "npu_train/train/passes.hpp"

namespace npu_train::detail {
namespace {

RunConfig step_config(RunConfig config, int64_t batch_size) {
  config = bench_config(std::move(config));
  config.model.options.erase("weights");  // the values of the weights do not matter
  config.data = {};                       // no data set: only the batch size matters
  config.data.options.set("batch_size", ConfigNode(batch_size));
  config.data.options.set("num_workers", ConfigNode("0"));
  return config;
}

}  // namespace

RunConfig bench_config(RunConfig config) {
  config = without_side_effects(std::move(config));
  config.trainer.max_epochs = -1;
  config.trainer.max_steps = -1;
  config.trainer.accumulate_grad_batches = 1;
  config.dist.compression_start = 0;           // most steps of a run are compressed
  config.lr_scheduler = {.name = "constant"};  // a schedule needs the length of a real run
  return config;
}

BenchStep::BenchStep(RunConfig config, const Parts& parts, int64_t batch_size)
    : trainer_(step_config(std::move(config), batch_size), parts) {
  // the data set is a placeholder, which knows neither its image size nor its classes
  trainer_.setup(nullptr, std::make_shared<TensorDataset>(at::zeros({batch_size, 1}), at::zeros({batch_size})));
  const auto& model = trainer_.model();
  device_ = trainer_.loop().parts().device;
  at::manual_seed(static_cast<uint64_t>(trainer_.config().seed));  // makes runs comparable
  batch_ = example_batch(model.inputs, {.samples = batch_size});
  batch_.set("target", trainer_.task().example_target(batch_));
  if (trainer_.loop().parts().train_loader->options().channels_last)
    batch_.set("input", batch_.input().contiguous(at::MemoryFormat::ChannelsLast));
  // sharded parameters have no memory between steps
  const bool is_complete = !trainer_.loop().parts().strategy->shards_parameters();
  flops_ = npu_train::flops_per_sample(is_complete ? model : parts.models.make(trainer_.config().model, "model"));
  const auto& backend = backend_of(device_);
  if (backend.capabilities(device_).pinned_memory) batch_ = pin(batch_);  // like batches of a loader
  inputs_ = batch_;
  inputs_.erase("target");  // a prediction does not copy targets to the device
  before_ = backend.memory(device_).allocated;
  backend.reset_peak(device_);
}

void BenchStep::train() {
  trainer_.train_step(batch_);
  backend_of(device_).synchronize(device_);
}

void BenchStep::predict() { trainer_.predict(inputs_); }

at::Tensor BenchStep::input() const { return to_device(batch_, device_).input(); }

double BenchStep::loss() { return scalar_or(trainer_.train_step(batch_).metrics, "loss", 0); }

double BenchStep::validation_loss() {
  const auto& parts = trainer_.loop().parts();
  const at::NoGradGuard no_grad;
  trainer_.model().module->eval();
  const auto scope = parts.precision->forward_scope();
  const auto out = validation_output(*parts.task, *parts.precision, to_device(batch_, device_));
  trainer_.model().module->train();
  return out.loss.item().toDouble();
}

int64_t BenchStep::activation_bytes() {
  const auto& parts = trainer_.loop().parts();
  const auto batch = to_device(batch_, device_);
  const auto pass = [&] { run_backward(training_output(*parts.task, *parts.precision, batch).loss); };
  pass();  // allocates gradients before the measurement
  const int64_t peak = peak_bytes_of(device_, pass);
  parts.parameters->zero_grad();
  return peak;
}

void BenchStep::describe(BenchRow& row, const Samples& samples, double gemm_flops) const {
  const auto batch = static_cast<double>(batch_size());
  const auto add = [&](const char* key, double value) { row.numbers.emplace_back(key, value); };
  add("batch", batch);
  add("steps", static_cast<double>(samples.size()));
  add("samples_per_s", batch / samples.median());
  add("step_ms_median", 1e3 * samples.median());
  add("step_ms_min", 1e3 * samples.min());
  add("step_ms_p95", 1e3 * samples.percentile(95));
  add("scatter", samples.scatter());
  add_memory(row);
  if (gemm_flops > 0) add("share_of_gemm", kStepPasses * static_cast<double>(flops_) * batch / samples.min() / gemm_flops);
  row.samples = samples;
}

void add_memory_numbers(BenchRow& row, int64_t before, int64_t peak) {
  if (before >= 0) row.numbers.emplace_back("initial_memory_bytes", static_cast<double>(before));
  if (peak >= 0) peak = std::max(peak, before);  // Linux counts the pages of a process only approximately
  if (peak >= 0) row.numbers.emplace_back("peak_memory_bytes", static_cast<double>(peak));
  if (peak >= 0 && before >= 0) row.numbers.emplace_back("memory_increase_bytes", static_cast<double>(peak - before));
}

void BenchStep::add_memory(BenchRow& row) const { add_memory_numbers(row, before_, backend_of(device_).memory(device_).peak); }

int64_t BenchStep::bytes_moved() {
  MovedBytes moved;
  {
    const OpObserver observer(*trainer_.loop().parts().parameters, moved, /*every=*/true);
    train();
  }
  return moved.bytes;
}

BenchRow BenchStep::phases(const std::string& of, int64_t steps) {
  Profiler profiler(device_, *trainer_.loop().parts().parameters);
  auto& observers = trainer_.loop().observers();
  observers.add(&profiler);
  try {
    for (int64_t i = 0; i <= steps; ++i) train();  // the first step is not counted
  } catch (...) {
    observers.remove(&profiler);
    throw;
  }
  observers.remove(&profiler);
  return phase_row(of, profiler.profile());
}

BenchRow phase_row(const std::string& of, const Profile& profile) {
  BenchRow row{.section = "phases", .name = of + (profile.synchronised ? ", the device waited for after each" : "")};
  if (profile.windows == 0 || !(profile.seconds > 0)) {
    row.failure = "too few steps for a result";
    return row;
  }
  row.numbers = {{"steps", static_cast<double>(profile.windows)},
                 {"step_ms_mean", 1e3 * profile.seconds / static_cast<double>(profile.windows)}};
  auto phases = profile.phases;
  std::sort(phases.begin(), phases.end(), [](const PhaseTime& a, const PhaseTime& b) { return a.phase < b.phase; });
  for (const auto& p : phases) row.numbers.emplace_back(std::string("share_of_") + phase_name(p.phase), p.seconds / profile.seconds);
  row.numbers.emplace_back("share_of_rest", profile.between() / profile.seconds);
  return row;
}

}  // namespace npu_train::detail
