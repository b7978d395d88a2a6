// A model that is given on the command line: --model NAME [--num-classes N] [model.KEY=VALUE ...].
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/engine/parts.hpp"

namespace npu_train::cli {

struct ModelArguments {
  std::string name;
  int64_t num_classes = 0;        // 0: as model.num_classes, or the model's own number
  std::vector<std::string> keys;  // "model.image_size=384"

  bool given() const { return !name.empty(); }
  /// The part of a configuration. Error(Usage) for keys of other parts, and for those that the model does not have.
  PartConfig part(const Parts& parts) const;
};

/// True for "model.KEY=VALUE".
bool is_model_key(const std::string& word);

/// Adds --model and --num-classes; the keys are among the positional arguments, which each subcommand has for itself.
void add_model_options(CLI::App& sub, ModelArguments& args, const std::string& model_help);

}  // namespace npu_train::cli
