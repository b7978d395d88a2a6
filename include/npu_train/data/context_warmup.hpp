/// Short sequences first: `data.context_warmup` (Li et al., "The Stability-Efficiency Dilemma: Investigating Sequence Length Warmup for
/// Training GPT Models", NeurIPS 2022).
#pragma once

#include <cstdint>

#include "npu_train/base/batch.hpp"
#include "npu_train/core/config_table.hpp"

namespace npu_train {

/// Section `context_warmup`: training begins with the first `from` tokens of each sample, and has more of them from step to step.
struct ContextWarmup {
  int64_t from = 64;  ///< tokens of a sample in the first step, at least 8
  int64_t steps = 0;  ///< the step from which on samples are complete, counting attempted ones from 0; 0: they always are
  static const ConfigTable<ContextWarmup>& config_table();
};

/// Tokens of a sample of `context` tokens in attempted step `step`: rises linearly, in multiples of 8. Error(Usage) for a `from` that is
/// not below `context`, or is below 8.
int64_t warmup_length(const ContextWarmup& warmup, int64_t context, int64_t step);

/// A batch with the first `length` tokens of each sequence: of every field of ids [batch, tokens] whose size is that of "input". The same
/// batch if it has no more tokens. Error(Usage) for a batch whose "input" is no ids [batch, tokens].
Batch first_tokens(Batch batch, int64_t length);

}  // namespace npu_train
