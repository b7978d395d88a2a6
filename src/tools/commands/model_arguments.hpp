// The model that a command line names: --checkpoint DIR, or --model NAME [--num-classes N] [--weights FILE] [model.KEY=VALUE ...].
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/engine/model_source.hpp"
#include "npu_train/engine/parts.hpp"

namespace npu_train::cli {

struct ModelArguments {
  std::string checkpoint;
  std::string name;
  std::string weights;            // of a name: a file or folder; of a checkpoint: plain or ema
  int64_t num_classes = 0;        // 0: as model.num_classes, or the model's own number
  std::vector<std::string> keys;  // "model.image_size=384"

  bool named() const { return !name.empty(); }
  /// Whether anything names a model.
  bool given() const { return named() || !checkpoint.empty() || !weights.empty() || !keys.empty() || num_classes != 0; }
  /// The part of a configuration. Error(Usage) for keys of other parts, and for those that the model does not have.
  PartConfig part(const Parts& parts) const;
  /// Error(Usage), in the name of `command`, unless the arguments name either a checkpoint, or a model; with `needs_weights` a name needs
  /// weights.
  ModelSource source(const char* command, bool needs_weights, const Parts& parts) const;
};

/// True for "model.KEY=VALUE".
bool is_model_key(const std::string& word);

/// plain or ema; nothing for "". Error(Usage) in the name of `command`.
std::optional<WeightSet> weight_set_argument(const char* command, const std::string& word);

/// Adds --model and --num-classes; the keys are among the positional arguments, which each subcommand has for itself.
void add_model_options(CLI::App& sub, ModelArguments& args, const std::string& model_help);
/// Adds these and --checkpoint and --weights.
void add_source_options(CLI::App& sub, ModelArguments& args);

}  // namespace npu_train::cli
