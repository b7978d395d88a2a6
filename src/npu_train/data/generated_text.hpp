/// Text that needs no download: English sentences of a small grammar, drawn from a seed, with bytes as tokens.
#pragma once

#include <cstdint>
#include <string>

#include "npu_train/data/data_options.hpp"
#include "npu_train/data/prefixed.hpp"

namespace npu_train {

/// Returns `bytes` bytes of sentences such as "the old dogs see a red house.". Number and verb agree, so the text has dependencies between
/// words that a model can learn. It depends only on the arguments. Error(Usage) for a negative or huge number.
std::string generate_text(int64_t bytes, uint64_t seed);

struct GeneratedTextOptions : DataOptions, PrefixOptions {
  int64_t train_size = 2048;
  int64_t val_size = 128;
  int64_t context = 64;
  int64_t data_seed = 1;
  static const ConfigTable<GeneratedTextOptions>& config_table();
};

}  // namespace npu_train
