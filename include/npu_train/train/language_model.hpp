/// The task of a decoder: predicting the next token.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "npu_train/train/model_task.hpp"

namespace npu_train {

struct LanguageModelOptions {
  int64_t ignore_index = -100;    ///< targets of this value count neither in the loss nor in the metrics
  double label_smoothing = 0;     ///< share of the target that all tokens divide equally
  std::vector<Metric> metrics{};  ///< instead of acc and perplexity; in a configuration by name
};

/// Mean cross entropy over the tokens of a batch (nn/cross_entropy.hpp). The model maps "input" [batch, tokens], or "tokens" next to
/// images, to logits [batch, tokens, vocabulary]; "target" [batch, tokens] (int64) has the token that follows each. In a batch without one
/// (documents of different lengths) the targets are the input's own next tokens, without those whose "attention_mask" is 0 and those among
/// the first "prompt" [batch] tokens of a text. The weight of a batch is the number of its tokens that count, so that accumulation and
/// ranks with unequal numbers of tokens give the mean over all tokens; on another device than the CPU, counting them waits for the device
/// once per micro-batch. A "mask" [batch] leaves padded samples out. Metric acc: the percentage of the tokens that count whose logit is the
/// largest (ties count against it), over all tokens together. Metric perplexity: exp of the mean loss. Error(Usage) for other shapes,
/// Error(Data) for a target outside of the vocabulary.
std::shared_ptr<Task> language_model(Model model, LanguageModelOptions options = {});

}  // namespace npu_train
