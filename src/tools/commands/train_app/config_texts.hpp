// What train_app prints about configurations: the parts that one can name, and where each value of one comes from.
#pragma once

#include <string>
#include <vector>

#include "npu_train/engine/parts.hpp"

namespace npu_train::cli {

/// The kinds of parts that `--list` knows: "models, datasets, ...".
extern const char* const kListedParts;

/// Returns a line for each part of a kind: its name and what it is. Error(Usage) for another kind.
std::string listed_parts(const std::string& kind, const Parts& parts);

/// Returns a line for each value of the configuration with all defaults: the key, the value, and its source (configs/a.yaml:3:7, command
/// line, default). Error(Usage) as load_config().
std::string explained_config(const std::string& file, const std::vector<std::string>& overrides, const Parts& parts);

/// Returns the words that begin an override: "precision=", "trainer.max_epochs=", and "model." for a part, whose name decides its keys.
std::vector<std::string> override_words(const Parts& parts);

}  // namespace npu_train::cli
