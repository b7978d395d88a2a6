/// The tasks of language models: predicting the next token (decoders), and hidden tokens (encoders).
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

/// Returns a task with the mean cross entropy over the tokens of a batch (nn/cross_entropy.hpp). The model maps "input" [batch, tokens] to
/// logits [batch, tokens, vocabulary]; if it also takes images, the tokens are the field "tokens". "target" [batch, tokens] (int64) has the
/// token that follows each input token. In a batch without "target" (documents of different lengths), the targets are the next tokens of
/// the input, except those whose "attention_mask" or "loss_mask" [batch, tokens] is 0. The weight of a batch is the number of its targets
/// that count, so that accumulation and ranks with unequal numbers of tokens give the mean over all tokens; on a device other than the CPU,
/// counting them waits for the device once per micro-batch. A "mask" [batch] excludes padded samples. Metric acc: the percentage of right
/// predictions of targets that count. A prediction is right if the target has the largest logit; a tie counts as wrong. Metric perplexity:
/// exp of the mean loss. Error(Usage) for other shapes; on the CPU, Error(Data) for a target outside of the vocabulary.
std::shared_ptr<Task> language_model(Model model, LanguageModelOptions options = {});

// The task of an encoder: predicting tokens that are hidden from it (Devlin et al., "BERT", NAACL 2019).

struct MaskedLanguageModelOptions {
  int64_t mask_token = -1;                ///< replaces a hidden token; must be given
  std::vector<int64_t> special_tokens{};  ///< never hidden: beginning, end, padding
  double mask_probability = 0.15;         ///< probability with which a token is selected for prediction
  double mask_share = 0.8;                ///< share of the selected tokens that mask_token replaces
  double random_share = 0.1;              ///< share of the selected tokens that a random token replaces; the rest is unchanged
  uint64_t seed = 0;                      ///< seed of the draws
  std::vector<Metric> metrics{};          ///< replaces acc and perplexity; set by a configuration's list of metrics
};

struct MaskedTokens {
  at::Tensor input;   ///< [batch, tokens], with hidden tokens
  at::Tensor target;  ///< the tokens to predict, -100 elsewhere
};

/// Selects the tokens to predict among those where `maskable` (bool [batch, tokens]) is true: each with mask_probability, and at least one
/// in every sequence that has such a token. The draws depend only on `key` and the shape, not on the device. Random tokens are below
/// `vocabulary`.
MaskedTokens mask_tokens(const at::Tensor& tokens, const at::Tensor& maskable, const MaskedLanguageModelOptions& options,
                         int64_t vocabulary, uint64_t key);

/// Returns a task with the mean cross entropy over the hidden tokens of a batch. The model maps "input" [batch, tokens] to logits [batch,
/// tokens, vocabulary]. Special tokens, tokens whose "attention_mask" is 0 and padded samples ("mask" [batch]) are never hidden. The draws
/// for each micro-batch are keyed by the seed, the attempted window, the number of the micro-batch over all ranks, and the epoch and index
/// of the batch, so they are equal for every number of ranks and after a resume. A validation draws by the index of the batch, so all
/// validations hide the same tokens. The weight of a batch is the number of its hidden tokens, so accumulation and ranks give the mean over
/// all of them. Counting them on a device other than the CPU waits for the device once per micro-batch. Metric acc: the percentage of all
/// hidden tokens whose logit is the largest. Metric perplexity: exp of the mean loss. Error(Usage) for other shapes and options out of
/// range.
std::shared_ptr<Task> masked_language_model(Model model, MaskedLanguageModelOptions options);

}  // namespace npu_train
