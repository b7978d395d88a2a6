#include "npu_train/tools/memory/memory_prediction.hpp"

#include <algorithm>
#include <optional>

#include "memory_steps.hpp"
#include "mirrored_group.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/dist/offload.hpp"
#include "npu_train/engine/model_precision.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/tools/runs/proof_runs.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train {
namespace {

using detail::kFewSamples, detail::kMoreSamples;

constexpr const char* kPrecisions[] = {"32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true"};
constexpr const char* kCheckpointing[] = {"none", "blocks"};

struct Measured {
  MemoryModel model;
  std::string device, precision;
  int64_t batch = 0;
};

// Returns the device; `auto` is the simulated card if there is no real one.
std::string device_for(const RunConfig& config) {
  if (config.device != "auto") return config.device;
  const auto here = resolve_device("auto");
  if (!here.is_cpu()) return here.str();
  try {
    start_sim_npu(config.sim_npu);
    return "sim_npu";
  } catch (const Error& e) {
    log_warning("memory: the simulated NPU cannot be used; the CPU's kernels are used instead: ", e.what());
    return "cpu";
  }
}

// Selects the device on which the steps are recorded. In place of an NPU, this is the CPU, since torch_npu's allocator reports no blocks to
// libtorch, and the simulated NPU cannot be used in the same process.
void choose_device(RunConfig& config) {
  config.device = device_for(config);
  if (!config.device.starts_with("npu")) return;
  if (config.precision == "auto") config.precision = make_precision(precision_options(config), run_device(config))->name();
  config.device = "cpu";
}

// Returns the configuration with a device that records the peak memory of tensors.
RunConfig on_card(const RunConfig& given) {
  auto config = detail::without_files(given);
  config.device = device_for(given);
  check(!run_device(config).is_cpu(), ErrorKind::Usage, "memory",
        "the CPU's allocator does not record the peak memory of tensors; hint: device=sim_npu");
  return config;
}

Batch first_batch(Trainer& trainer, int64_t size) {
  auto data = trainer.data();
  data.options.batch_size = size;
  data.options.num_workers = "0";
  auto options = trainer.loop().parts().train_loader->options();
  options.finish = {};
  options.num_workers = 0;
  auto loader = train_loader(data, options);
  loader.begin_epoch(0);
  auto batch = loader.next();
  check(batch && batch->rows() == size, ErrorKind::Data, "memory", "the data set provided no batch of ", size, " samples");
  return *batch;
}

// Returns a batch of `size` samples; repeats samples if the data set has too few.
Batch batch_of(Trainer& trainer, int64_t size) {
  const auto& loader = *trainer.loop().parts().train_loader;
  const auto there = loader.samples_per_epoch().value_or(size);
  return there >= size ? first_batch(trainer, size) : detail::rows_of(first_batch(trainer, std::max<int64_t>(1, there)), size);
}

MemoryTrace record(Trainer& trainer, const std::vector<Batch>& window) {
  auto& loop = trainer.loop();
  const auto& run = loop.parts();
  MemoryRecorder recorder(trainer.task(), run.device, on_device(*run.strategy, run.optimizer->parameters()));
  loop.observers().add(&recorder);
  try {
    trainer.train_step(window);
  } catch (...) {
    loop.observers().remove(&recorder);
    throw;
  }
  loop.observers().remove(&recorder);
  return recorder.take();
}

Measured measure(const RunConfig& given, const Parts& parts) {
  auto config = detail::without_files(given);
  choose_device(config);
  config.trainer.profiler = "none";
  config.trainer.on_oom = "stop";
  if (parts.process_group && config.trainer.strategy == "auto") config.trainer.strategy = "ddp";  // independent of this machine's memory
  if (config.grad_scaler.dynamic) {                                                               // avoids skipped steps
    config.grad_scaler.init_scale = 1;
    config.grad_scaler.min_scale = std::min(config.grad_scaler.min_scale, 1.0);
  }
  Trainer trainer(config, detail::shapes_only(parts, config));
  trainer.setup();
  const auto& run = trainer.loop().parts();
  const auto large = batch_of(trainer, kMoreSamples);
  const auto small = large.pending.empty() ? large.narrow(0, kFewSamples) : batch_of(trainer, kFewSamples);
  // Only two micro-batches are recorded, since later ones equal the second.
  const auto recorded = static_cast<size_t>(std::min<int64_t>(2, config.trainer.accumulate_grad_batches));
  const std::vector<Batch> small_window(recorded, small), large_window(recorded, large);
  trainer.train_step(small_window);  // the first step initialises kernels and state
  auto resident = detail::resident_memory(run);
  const auto large_trace = record(trainer, large_window), small_trace = record(trainer, small_window);
  Measured out{.model = MemoryModel(std::move(resident), small_trace, kFewSamples, large_trace, kMoreSamples),
               .device = run.device.str(),
               .precision = run.precision->name(),
               .batch = run.train_loader->options().batch_size};
  out.model.add_waiting_batches(config.trainer.accumulate_grad_batches - static_cast<int64_t>(recorded));
  return out;
}

MemoryPrediction::Variant variant_of(const Measured& measured, const MemoryPredictionOptions& options) {
  const auto peak = measured.model.peak(measured.batch);
  return {.precision = measured.precision,
          .strategy = {},
          .checkpointing = {},
          .allocated = peak.allocated,
          .reserved = peak.reserved,
          .largest = options.hbm > 0 ? measured.model.largest_batch(options.hbm) : 0,
          .problem = {}};
}

std::string strategy_of(const RunConfig& config, int ranks) {
  if (ranks == 1) return "single";
  return config.trainer.strategy == "auto" ? "ddp" : config.trainer.strategy;
}

// Returns the alternatives, each with and without checkpointing: all precisions for one process, all strategies for several. They may
// include the configuration's own.
std::vector<RunConfig> alternatives(const RunConfig& given, int ranks) {
  std::vector<RunConfig> out;
  const auto add = [&](const auto& change) {
    for (const char* checkpointing : kCheckpointing) {
      auto config = given;
      change(config);
      config.trainer.gradient_checkpointing = checkpointing;
      out.push_back(std::move(config));
    }
  };
  if (ranks == 1) {
    for (const char* precision : kPrecisions) add([&](RunConfig& config) { config.precision = precision; });
  } else {
    for (const char* strategy : kStrategyNames) add([&](RunConfig& config) { config.trainer.strategy = strategy; });
  }
  return out;
}

// Returns the variants in the order of the lists; the configuration's own variant comes first if it is not listed.
std::vector<MemoryPrediction::Variant> variants_of(const RunConfig& given, const Measured& own, const MemoryPredictionOptions& options,
                                                   const Parts& parts) {
  std::vector<MemoryPrediction::Variant> out;
  auto chosen = variant_of(own, options);
  chosen.strategy = strategy_of(given, options.ranks);
  chosen.checkpointing = given.trainer.gradient_checkpointing;
  chosen.chosen = true;
  bool listed = false;
  for (const auto& config : alternatives(given, options.ranks)) {
    const auto precision = options.ranks == 1 ? config.precision : own.precision;
    const auto strategy = strategy_of(config, options.ranks);
    const auto& checkpointing = config.trainer.gradient_checkpointing;
    if (precision == chosen.precision && strategy == chosen.strategy && checkpointing == chosen.checkpointing) {
      out.push_back(chosen);
      listed = true;
      continue;
    }
    MemoryPrediction::Variant variant;
    try {
      variant = variant_of(measure(config, parts), options);
    } catch (const Error& e) {
      variant.problem = without_hint(e.what());
    }
    variant.precision = precision;
    variant.strategy = strategy;
    variant.checkpointing = checkpointing;
    out.push_back(std::move(variant));
  }
  if (!listed) out.insert(out.begin(), chosen);
  return out;
}

// Returns `parts` with simulated ranks in this process.
Parts with_ranks(Parts parts, int ranks) {
  constexpr int kMost = 65536;
  check(ranks >= 1 && ranks <= kMost, ErrorKind::Usage, "memory", ranks, " ranks; allowed: 1 to ", kMost);
  if (ranks > 1) parts.process_group = [ranks](const DistOptions& dist) { return detail::mirrored_group(ranks, dist); };
  return parts;
}

}  // namespace

ResidentMemory detail::resident_memory(const LoopParts& parts, const std::vector<Batch>& waiting) {
  ResidentMemory out;
  const auto& all = *parts.parameters;
  out.add(MemoryUse::Parameters, all.values());
  const auto is_master = [&](const Parameter& p) { return p.value.scalar_type() != all.find(p.name)->value.scalar_type(); };
  std::vector<at::Tensor> masters, buffers, state;
  for (const auto& one : parts.optimizers) {
    const auto& updated = on_device(*one.strategy, one.optimizer->parameters());
    if (one.strategy->shards_parameters())
      out.add(MemoryUse::Parameters, updated.filter([&](const Parameter& p) { return !is_master(p); }).values());
    for (const auto& p : updated) masters.push_back(p.value);
  }
  for (const auto& [name, tensor] : parts.task->buffers()) buffers.push_back(tensor);
  out.add(MemoryUse::Buffers, buffers);
  out.add(MemoryUse::Masters, masters);
  const auto add_state = [&](const at::Tensor& tensor) {
    if (tensor.device() == parts.device.c10()) state.push_back(tensor);  // state on the host does not count
  };
  for (const auto& one : parts.optimizers)
    for (const auto& [name, tensor] : one.optimizer->state().tensors) add_state(tensor);
  out.add(MemoryUse::Optimizer, state);
  state.clear();
  if (parts.average != nullptr)
    for (const auto& [name, tensor] : parts.average->state().tensors) add_state(tensor);
  out.add(MemoryUse::Averages, state);
  state.clear();
  for (const auto& batch : waiting)
    for (const auto& [name, tensor] : batch.fields()) state.push_back(tensor);
  out.add(MemoryUse::Batch, state);
  if (!parts.device.is_cpu()) {
    const auto allocated = backend_of(parts.device).memory(parts.device).allocated;
    if (allocated > out.total()) out.tensors.emplace_back(MemoryUse::Other, allocated - out.total());
  }
  return out;
}

MemoryModel measure_memory(const RunConfig& config, const Parts& parts) {
  return translated("memory", [&] { return measure(config, parts).model; });
}

MemoryPrediction predict_memory(const RunConfig& config, const MemoryPredictionOptions& options, const Parts& given) {
  return translated("memory", [&] {
    const auto parts = with_ranks(given, options.ranks);
    const auto measured = measure(config, parts);
    MemoryPrediction out;
    out.model = config.model.name;
    out.device = measured.device;
    out.precision = measured.precision;
    out.checkpointing = config.trainer.gradient_checkpointing;
    out.optimizer = config.optimizer.name;
    out.batch = measured.batch;
    out.accumulate = config.trainer.accumulate_grad_batches;
    out.ranks = options.ranks;
    out.strategy = strategy_of(config, options.ranks);
    out.small_batch = kFewSamples;
    out.large_batch = kMoreSamples;
    out.matched = measured.model.matched();
    out.peak = measured.model.peak(measured.batch);
    out.hbm = options.hbm;
    if (options.hbm > 0) out.largest = measured.model.largest_batch(options.hbm);
    if (options.variants) out.variants = variants_of(config, measured, options, parts);
    if (!out.matched)
      out.notes.push_back(
          "the two steps allocated different blocks of memory, so only the peak of each phase was extrapolated; blocks of "
          "the caching allocator are assumed to be 5 % larger");
    if (out.checkpointing.starts_with("budget"))
      out.notes.push_back("the recomputed blocks were chosen for batch " + std::to_string(out.batch) + " and kept for the other batches");
    return out;
  });
}

std::string fitting_overrides(const RunConfig& given, int64_t hbm, const Parts& parts) {
  return translated("memory", [&] {
    auto config = given;
    // Two micro-batches are recorded, since in a window the gradients exist from the second one on.
    config.trainer.accumulate_grad_batches = std::max<int64_t>(2, given.trainer.accumulate_grad_batches);
    const auto in_pieces = [&](bool on_host = false) -> std::string {
      auto [model, device, precision, batch] = measure(config, parts);
      const auto window = batch * given.trainer.accumulate_grad_batches;
      for (auto rows = batch; rows >= 1; --rows) {
        if (window % rows != 0 || rows == window) continue;
        model.add_waiting_batches(on_host ? 0 : window / rows - 2);
        if (model.fits(rows, hbm)) return str_cat("data.batch_size=", rows, " trainer.accumulate_grad_batches=", window / rows);
      }
      return "";
    };
    const auto on_host = [&](const std::string& before) {  // keeps a window's batches on the host, since they may fill the card
      const auto pieces = in_pieces(true);
      return pieces.empty() ? pieces : before + "trainer.on_oom=retry " + pieces;
    };
    if (const auto pieces = in_pieces(); !pieces.empty()) return pieces;
    if (auto pieces = on_host(""); !pieces.empty() || given.trainer.gradient_checkpointing != "none") return pieces;
    const std::string checkpointing = "trainer.gradient_checkpointing=blocks";
    auto whole = given;
    whole.trainer.gradient_checkpointing = config.trainer.gradient_checkpointing = "blocks";
    if (const auto measured = measure(whole, parts); measured.model.fits(measured.batch, hbm)) return checkpointing;
    if (const auto pieces = in_pieces(); !pieces.empty()) return checkpointing + " " + pieces;
    return on_host(checkpointing + " ");
  });
}

std::string fitting_strategy(const RunConfig& given, int64_t hbm, int ranks, bool overrides, const Parts& parts) {
  return translated("memory", [&]() -> std::string {
    const auto simulated = with_ranks(parts, ranks);
    auto config = given;
    const auto first = [&](const auto& fits) -> std::string {
      for (const char* strategy : {"zero1", "zero2", "zero3"}) {
        config.trainer.strategy = strategy;
        if (const auto with = fits(); with) return str_cat("trainer.strategy=", strategy, *with, " on ", ranks, " ranks");
      }
      return "";
    };
    auto out = first([&]() -> std::optional<std::string> {
      const auto measured = measure(config, simulated);
      return measured.model.fits(measured.batch, hbm) ? std::optional<std::string>("") : std::nullopt;
    });
    if (!out.empty() || !overrides) return out;
    return first([&]() -> std::optional<std::string> {
      const auto with = fitting_overrides(config, hbm, simulated);
      return with.empty() ? std::nullopt : std::optional(" " + with);
    });
  });
}

int64_t measured_peak(const RunConfig& given, int64_t batch, const Parts& parts) {
  return translated("memory", [&] {
    auto config = on_card(given);
    config.trainer.max_steps = 2;
    config.trainer.max_epochs = -1;
    config.checkpoint.enabled = false;
    config.data.options.set("batch_size", ConfigNode(batch));
    const auto device = run_device(config);
    backend_of(device).empty_cache(device);
    backend_of(device).reset_peak(device);
    Trainer(config, detail::shapes_only(parts, config)).fit();
    return backend_of(device).memory(device).peak;
  });
}

std::vector<MemoryCheck> check_memory(const RunConfig& given, const std::vector<int64_t>& batches, const Parts& parts) {
  return translated("memory", [&] {
    const auto config = on_card(given);
    const auto model = measure(config, parts).model;
    std::vector<MemoryCheck> out;
    for (const auto batch : batches) out.push_back({batch, model.peak(batch).allocated, measured_peak(config, batch, parts)});
    return out;
  });
}

}  // namespace npu_train
