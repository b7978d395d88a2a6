// The data sets of text.
#pragma once

#include "npu_train/data/datasets.hpp"
#include "npu_train/data/generated_text.hpp"
#include "npu_train/data/tokens.hpp"

namespace npu_train::detail {

// Error(Usage) for transforms and mixing, which are for images.
DatasetPair open_tokens(const TokensOptions& options);
DatasetPair open_generated_text(const GeneratedTextOptions& options);

}  // namespace npu_train::detail
