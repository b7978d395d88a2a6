/// The task of a decoder: predicting the next token.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "npu_train/train/model_task.hpp"

namespace npu_train {

struct LanguageModelOptions {
  int64_t ignore_index = -100;    ///< targets with this value count neither in the loss nor in the metrics
  double label_smoothing = 0;     ///< share of the target that is spread equally over all tokens
  std::vector<Metric> metrics{};  ///< replaces acc and perplexity; set by a configuration's list of metrics
};

/// Returns a task with the mean cross entropy over the tokens of a batch (nn/cross_entropy.hpp). The model maps "input" [batch, tokens], or
/// "tokens" next to images, to logits [batch, tokens, vocabulary]; "target" [batch, tokens] (int64) has the token that follows each. In a
/// batch without "target" (documents of different lengths), the targets are the next tokens of the input, except those whose
/// "attention_mask" or "loss_mask" [batch, tokens] is 0. The weight of a batch is the number of its targets that count, so that
/// accumulation and ranks with unequal numbers of tokens give the mean over all tokens; on a device other than the CPU, counting them waits
/// for the device once per micro-batch. A "mask" [batch] excludes padded samples. Metric acc: the percentage of all targets that count
/// whose logit is the largest (ties count against it). Metric perplexity: exp of the mean loss. Error(Usage) for other shapes; on the CPU,
/// Error(Data) for a target outside of the vocabulary.
std::shared_ptr<Task> language_model(Model model, LanguageModelOptions options = {});

}  // namespace npu_train
