// Texts of train_app on configurations: the parts that they can name, and the source of each value.
#pragma once

#include <string>
#include <vector>

#include "npu_train/engine/parts.hpp"

namespace npu_train::cli {

/// Kinds of parts that `--list` accepts: "models, datasets, ...".
extern const char* const kListedParts;

/// Returns a line for each part of a kind: its name and what it is. Error(Usage) for another kind.
std::string listed_parts(const std::string& kind, const Parts& parts);

/// Returns a line for each value of the configuration, defaults included: the key, the value, and its source (configs/a.yaml:3:7, command
/// line, default). Throws Error(Usage) like load_config().
std::string explained_config(const std::string& file, const std::vector<std::string>& overrides, const Parts& parts);

/// Returns the words with which an override begins: "precision=", "trainer.max_epochs="; "model." for a part, whose name decides its keys.
std::vector<std::string> override_words(const Parts& parts);

}  // namespace npu_train::cli
