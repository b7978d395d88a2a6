/// Sequence length warmup: `data.context_warmup` (Li et al., "The Stability-Efficiency Dilemma: Investigating Sequence Length Warmup for
/// Training GPT Models", NeurIPS 2022).
#pragma once

#include <cstdint>

#include "npu_train/base/batch.hpp"
#include "npu_train/core/config_table.hpp"

namespace npu_train {

/// Section `context_warmup`: training begins with the first `from` tokens of each sample; the length grows linearly over `steps` steps.
struct ContextWarmup {
  int64_t from = 64;  ///< tokens of a sample in the first step, at least 8
  int64_t steps = 0;  ///< attempted step (from 0) from which samples have their full length; 0: no warmup
  static const ConfigTable<ContextWarmup>& config_table();
};

/// Returns the tokens per sample in attempted step `step`, of at most `context`: rises linearly, in multiples of 8. Error(Usage) if `from`
/// is below 8, or not below `context`.
int64_t warmup_length(const ContextWarmup& warmup, int64_t context, int64_t step);

/// Truncates each sequence to its first `length` tokens, in every field of ids [batch, tokens] that has the size of "input". Returns the
/// batch unchanged if it is not longer. Error(Usage) unless "input" has ids [batch, tokens].
Batch first_tokens(Batch batch, int64_t length);

}  // namespace npu_train
