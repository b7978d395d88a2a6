/// Text from a decoder: a token is drawn from the logits of the last one, is appended, and the next follows.
///
///   const std::vector<int64_t> prompt = npu_train::byte_tokens("the old dog ");  // npu_train/data/token_text.hpp
///   const auto tokens = npu_train::generate(model, prompt, {.max_new_tokens = 50, .sampling = {.temperature = 0.8}, .seed = 1});
///   std::cout << npu_train::text_of_bytes(tokens);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "npu_train/core/seed.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train {

/// How a token is drawn from logits.
struct SamplingOptions {
  double temperature = 1;  ///< the logits are divided by it; 0: always the token with the largest logit ("greedy")
  int64_t top_k = 0;       ///< only the k most probable tokens; 0: all
  /// Draws among the smallest set of most probable tokens whose probabilities add up to at least this share (Holtzman et al., "The Curious
  /// Case of Neural Text Degeneration", ICLR 2020). Applied after top_k, to the probabilities of the tokens that are left.
  double top_p = 1;
};

struct GenerateOptions {
  int64_t max_new_tokens = 100;
  SamplingOptions sampling{};
  uint64_t seed = 0;  ///< of the draws; equal seeds give equal tokens for equal logits
  /// false computes the logits of all tokens for each new one: slow, with the same tokens.
  bool key_value_cache = true;
  /// Called with each new token; false ends the generation.
  std::function<bool(int64_t token)> on_token{};
};

/// Number of the token drawn from logits [vocabulary], of any dtype and device. Of equal logits the lower number is first. Error(Usage) for
/// options out of range, Error(Data) for logits that are not numbers.
int64_t sample_token(const at::Tensor& logits, const SamplingOptions& options, Philox& random);

/// The new tokens after `prompt`, which has at least one token. In evaluation mode, without gradients, on the model's device. A model with
/// a bounded input (a usual size "tokens") sees the last tokens that fit, so that any number can be generated; from there on each token
/// takes a complete forward. Error(Usage) for an empty prompt, for tokens outside of the vocabulary, and for a model without token ids as
/// its input.
std::vector<int64_t> generate(const Model& model, const std::vector<int64_t>& prompt, const GenerateOptions& options = {});

}  // namespace npu_train
