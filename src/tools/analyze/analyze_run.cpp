#include "npu_train/tools/analyze/analyze_run.hpp"

#include "npu_train/core/error.hpp"
#include "npu_train/device/sim_npu.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/tools/runs/proof_runs.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train {
namespace {

Batch first_batch(Trainer& trainer) {
  trainer.setup();
  auto& loader = *trainer.loop().parts().train_loader;
  loader.begin_epoch(0);
  auto batch = loader.next();
  check(batch.has_value(), ErrorKind::Data, "analyze", "the data set provided no batch");
  return std::move(*batch);
}

// Returns the configuration for the analysis on this CPU; `notes` lists its differences from a run on the chip.
RunConfig for_this_cpu(const RunConfig& given, const AscendOperators& chip, std::vector<std::string>& notes) {
  auto config = detail::without_files(given);
  config.device = "cpu";
  if (config.precision == "auto") {
    config.precision = chip.bf16() ? "bf16-mixed" : "16-mixed";
    notes.push_back("precision auto: " + config.precision + ", as on this chip");
  }
  config.cpu_low_precision = "emulated";
  return config;
}

}  // namespace

Analysis analyze_run(const RunConfig& given, const AnalysisOptions& options, const Parts& parts) {
  return translated("analyze", [&] {
    const AscendOperators chip(options.soc, options.torch);  // an invalid name is reported before minutes of work
    std::vector<std::string> notes;
    Trainer trainer(for_this_cpu(given, chip, notes), detail::shapes_only(parts, given));
    const auto batch = first_batch(trainer);
    if (trainer.config().precision != "32-true")
      notes.push_back("low precision was emulated on the CPU; the backward pass therefore contains products in fp32, between casts");
    trainer.train_step(batch);  // the first step initialises kernels and state
    const auto& parameters = *trainer.loop().parts().parameters;
    OperatorInventory inventory(parameters);
    trainer.add_observer(&inventory);
    trainer.train_step(batch);
    auto out = analyze(inventory, parameters, options);
    out.notes = std::move(notes);
    return out;
  });
}

TrialReport try_run(const RunConfig& given, const std::string& device, const TrialOptions& options, const Parts& parts) {
  return translated("analyze", [&] {
    check(device != "auto", ErrorKind::Usage, "analyze", "a trial needs a device by name, not auto; allowed: npu, cuda:1, sim_npu, cpu");
    if (Device::parse(device).kind == "sim_npu") start_sim_npu(given.sim_npu);
    auto config = detail::without_files(given);
    config.device = "cpu";
    config.precision = "32-true";
    Trainer trainer(config, detail::shapes_only(parts, given));
    const auto batch = first_batch(trainer).finished();
    return try_device(trainer.task(), batch, device, options);
  });
}

}  // namespace npu_train
