// The model on a command line: --checkpoint DIR, or --model NAME [--num-classes N] [--weights FILE] [model.KEY=VALUE ...], or --weights
// FOLDER alone.
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
  std::string weights;            // with a name: a file or folder; with a checkpoint: plain | ema
  int64_t num_classes = 0;        // 0: model.num_classes or the model's default
  std::vector<std::string> keys;  // "model.image_size=384"

  bool named() const { return !name.empty(); }
  /// Whether any of the arguments is given.
  bool given() const { return named() || !checkpoint.empty() || !weights.empty() || !keys.empty() || num_classes != 0; }
  /// Returns the model section of a configuration. Error(Usage) for keys of other sections, and for those that the model does not have.
  PartConfig part(const Parts& parts) const;
  /// Returns where the model comes from. With `--model FOLDER`, the folder's config.json names the network. Error(Usage), with the name
  /// `command`, unless the arguments give either a checkpoint or a model (by its name, or by weights with a config.json). If
  /// `needs_weights`, it is also an error to give a name without weights.
  ModelSource source(const char* command, bool needs_weights, const Parts& parts) const;

 private:
  ModelArguments with_folder(const char* command, const Parts& parts) const;
};

/// Whether the word has the form "model.KEY=VALUE".
bool is_model_key(const std::string& word);

/// Parses plain or ema; nullopt for "". Error(Usage) with the name `command` for other words.
std::optional<WeightSet> weight_set_argument(const char* command, const std::string& word);

/// Adds --model and --num-classes. Each subcommand itself defines the positional argument model.KEY=VALUE.
void add_model_options(CLI::App& sub, ModelArguments& args, const std::string& model_help);
/// Adds the options of add_model_options(), --checkpoint and --weights.
void add_source_options(CLI::App& sub, ModelArguments& args);

}  // namespace npu_train::cli
