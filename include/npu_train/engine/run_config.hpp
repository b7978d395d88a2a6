/// The whole configuration of a run, as a struct. From a file by load_config(), or written in code:
///
///   npu_train::Trainer trainer({.device = "auto", .precision = "bf16-mixed", .trainer = {.max_epochs = 5}});
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/device/sim_npu.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/optim/ema.hpp"
#include "npu_train/precision/precision.hpp"
#include "npu_train/train/options.hpp"

namespace npu_train {

/// Section `output`: where a run leaves its files.
struct OutputOptions {
  std::string dir = "outputs";  ///< folder of all runs; "" writes nothing
  std::string name{};           ///< folder of this kind of run; "" takes the name of the model and the data
  bool tensorboard = true;      ///< events.out.tfevents.* beside metrics.csv and history.json
  static const ConfigTable<OutputOptions>& config_table();
};

/// Section `amp`.
struct AmpOptions {
  std::vector<std::string> fp32_modules{};           ///< blocks of the model that compute in fp32 under a low precision ("head", "layer4")
  std::vector<std::string> low_precision_modules{};  ///< exceptions from fp32_modules; normalisation layers that `*-true` is to cast
  std::vector<std::string> fp32_ops{};               ///< operators that compute in fp32 ("softmax", "gelu"), see precision/fp32_ops.hpp
  static const ConfigTable<AmpOptions>& config_table();
};

struct RunConfig {
  int64_t seed = 42;                    ///< every random number of the run follows from it
  std::string deterministic = "false";  ///< true: an operator without a deterministic form is an error; warn: it warns
  std::string rng =
      "native";  ///< dropout masks: native (the device's generator) | portable (equal on every device, see device/portable_random.hpp)
  std::string device = "auto";             ///< auto (npu, cuda, cpu) | cpu | cuda[:i] | npu[:i] | sim_npu[:i]
  std::string precision = "auto";          ///< auto | 32-true | bf16-mixed | 16-mixed | bf16-true | 16-true | O0 ... O3
  std::string cpu_low_precision = "auto";  ///< bf16 and fp16 on a CPU: auto (emulated where it has no units for them) | native | emulated
  SimNpuOptions sim_npu{};                 ///< the simulated NPU, for device sim_npu
  PartConfig model{};
  PartConfig data{};
  PartConfig task{.name = "classifier"};
  PartConfig optimizer{.name = "sgd"};
  PartConfig lr_scheduler{.name = "constant"};
  TrainerOptions trainer{};
  GradScalerOptions grad_scaler{};
  AmpOptions amp{};
  EmaOptions ema{};
  CheckpointOptions checkpoint{};
  EarlyStoppingOptions early_stopping{};
  OutputOptions output{};
  ConfigSections sections{};  ///< those of Parts.observers: sections["dump"] = {{"level", "op"}}; what is there is on
  static const ConfigTable<RunConfig>& config_table();
};

/// Reads a YAML file, applies the overrides ("trainer.max_epochs=3") and binds. Error(Usage) lists every mistake: file, line, column,
/// what was given, what is allowed, the nearest name. The options of the parts are checked against `parts` as well.
RunConfig load_config(const std::string& path, const std::vector<std::string>& overrides = {}, const Parts& parts = builtin_parts());

/// The same from a node that was read before. A section that is switched off counts as absent.
RunConfig bind_config(const ConfigNode& node, const Parts& parts = builtin_parts());

/// The checks that a file gets, for a struct that was filled in code: the tables, the options of the parts, and what keys contradict.
/// Error(Usage) lists every mistake. Opens nothing and reads no device; the Trainer calls it first.
void check_config(const RunConfig& config, const Parts& parts = builtin_parts());

/// The key of a section that `key` is short for: "optimizer.lr" of "lr"; "" for a key of a configuration itself, and for what is none.
std::string full_key(const std::string& key, const Parts& parts = builtin_parts());

/// The keys of a configuration, those of the observers' sections included.
std::vector<FieldInfo> config_fields(const Parts& parts = builtin_parts());

/// The configuration with every default filled in, the options of its parts too: what --print-config shows and a checkpoint keeps.
ConfigNode resolved(const RunConfig& config, const Parts& parts = builtin_parts());

/// Stands for a value that the data decide when the program runs. Next to any other value it is not a change of numbers: with the same
/// data the two are the same, and other data are a difference of their own.
inline constexpr const char* kLeftToData = "(left to the data)";

/// A configuration as a comparison with another one needs it: resolved, with the options of the transforms too, and kLeftToData
/// for what the data decide. Parts that `parts` does not know stay as they are written. Nothing, and the reason in
/// `why`, for what is no configuration of train_app: a mistake in it, or no model or no data named.
std::optional<ConfigNode> comparable_config(const ConfigNode& node, std::string& why, const Parts& parts = builtin_parts());

/// The options of a part that other parts decide: the model's classes and picture size where the configuration leaves them open.
PartConfig with_data_defaults(PartConfig model, const DatasetInfo& info, int64_t image_size, const Parts& parts);

}  // namespace npu_train
