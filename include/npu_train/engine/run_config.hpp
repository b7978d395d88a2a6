/// The complete configuration of a run as a struct. Load it from a file with load_config(), or write it in code:
///
///   npu_train::Trainer trainer({.device = "auto", .precision = "bf16-mixed", .trainer = {.max_epochs = 5}});
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/device/sim_npu.hpp"
#include "npu_train/dist/options.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/optim/average.hpp"
#include "npu_train/precision/precision.hpp"
#include "npu_train/train/options.hpp"

namespace npu_train {

/// Section `output`: the location of the run's files, and where its values go.
struct OutputOptions {
  std::string dir = "outputs";  ///< folder of all runs; "": no files are written
  std::string name{};           ///< subfolder for runs of this kind; "": named after the model and the data
  std::vector<PartConfig> logger{{.name = "csv"}, {.name = "tensorboard"}};  ///< from Parts.loggers, in this order
  /// Whether `logger` has a part of this name.
  bool logs_to(const std::string& which) const;
  static const ConfigTable<OutputOptions>& config_table();
};

/// Section `amp`.
struct AmpOptions {
  std::vector<std::string> fp32_modules{};           ///< blocks ("head", "layer4") and classes of layers ("LayerNorm") that compute in fp32
  std::vector<std::string> low_precision_modules{};  ///< exceptions from fp32_modules, and normalisation layers to cast in `*-true` modes
  std::vector<std::string> fp32_ops{};               ///< operators that compute in fp32 ("softmax", "gelu"), see precision/fp32_ops.hpp
  static const ConfigTable<AmpOptions>& config_table();
};

struct RunConfig {
  int64_t seed = 42;                    ///< seed of all random numbers of the run
  std::string deterministic = "false";  ///< true: an operator without a deterministic implementation is an error; warn: a warning
  std::string rng = "native";  ///< dropout masks: native (the device's generator) | portable (equal on every device, see device/random.hpp)
  std::string device = "auto";     ///< auto (npu, cuda, cpu) | cpu | cuda[:i] | npu[:i] | sim_npu[:i] | one of Parts.devices
  std::string precision = "auto";  ///< auto | 32-true | bf16-mixed | 16-mixed | bf16-true | 16-true | O0 ... O3
  std::string cpu_low_precision =
      "auto";               ///< bf16 and fp16 on a CPU: auto (emulated if it has no fast kernels for them) | native | emulated
  SimNpuOptions sim_npu{};  ///< the simulated NPU, for device sim_npu
  PartConfig model{};
  PartConfig data{};
  PartConfig task{.name = "classifier"};
  PartConfig optimizer{.name = "sgd"};
  NamedParts optimizers{};  ///< optimizers of an AlternatingTask, by name; an unlisted one has the options of `optimizer`
  PartConfig lr_scheduler{.name = "constant"};
  TrainerOptions trainer{};
  GradScalerOptions grad_scaler{};
  AmpOptions amp{};
  AverageOptions average{};
  CheckpointOptions checkpoint{};
  EarlyStoppingOptions early_stopping{};
  DistOptions dist{};                   ///< options for several processes; no effect in a single one
  std::vector<PartConfig> callbacks{};  ///< from Parts.callbacks, in this order: {part("plateau", {{"patience", 3}})}
  OutputOptions output{};
  ConfigSections sections{};  ///< sections of Parts.observers: sections["dump"] = {{"level", "op"}}; a present section is enabled
  static const ConfigTable<RunConfig>& config_table();
};

/// Reads a YAML file, applies the overrides ("trainer.max_epochs=3"), and converts it to a RunConfig. Error(Usage) lists all errors: file,
/// line, column, the given value, the allowed values, the nearest name. The options of the parts are checked against `parts`.
RunConfig load_config(const std::string& path, const std::vector<std::string>& overrides = {}, const Parts& parts = builtin_parts());

/// Converts a parsed configuration. A disabled section counts as absent.
RunConfig bind_config(const ConfigNode& node, const Parts& parts = builtin_parts());

/// Returns `node` with the current names of those sections and keys that had other names in earlier versions. bind_config() accepts both
/// the current and the earlier names.
ConfigNode with_present_names(ConfigNode node);

/// Checks a struct that was filled in code as load_config() checks a file: the tables, the options of the parts, and contradictions between
/// keys. Error(Usage) lists all errors. Opens no file and no device, but registers the devices of `parts`. The constructor of Trainer calls
/// this function.
void check_config(const RunConfig& config, const Parts& parts = builtin_parts());

/// Returns the keys ("average.decay") that were changed but have no effect, because their section has `enabled: false`.
std::vector<std::string> disabled_keys(const RunConfig& config);

/// Returns the full key that `key` abbreviates: "optimizer.lr" for "lr". "" for a top-level or unknown key.
std::string full_key(const std::string& key, const Parts& parts = builtin_parts());

/// Returns the keys of a configuration, including those of the observers' sections.
std::vector<FieldInfo> config_fields(const Parts& parts = builtin_parts());

/// Returns the configuration with all defaults filled in, including the options of its parts, as shown by --print-config and stored in
/// checkpoints.
ConfigNode resolved(const RunConfig& config, const Parts& parts = builtin_parts());

/// Placeholder for a value that the data determine at run time. A comparison ignores its difference from any other value: with the same
/// data the values are equal, and different data are reported separately.
inline constexpr const char* kLeftToData = "(left to the data)";

/// Returns a configuration in a form for comparisons: resolved, including the options of transforms, with kLeftToData for values that the
/// data determine. Parts that are not in `parts` stay as written. Returns nullopt, and the reason in `why`, if `node` is not a
/// configuration of train_app: it has an error, or names no model or no data.
std::optional<ConfigNode> comparable_config(const ConfigNode& node, std::string& why, const Parts& parts = builtin_parts());

/// Returns the model's part. Fills in options that the data determine (classes, image size), unless they are set.
PartConfig with_data_defaults(PartConfig model, const DatasetInfo& info, int64_t image_size, const Parts& parts);

}  // namespace npu_train
