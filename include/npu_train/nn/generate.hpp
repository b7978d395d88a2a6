/// Text generation with a decoder: repeatedly draws a token from the logits of the last position and appends it.
///
///   const std::vector<int64_t> prompt = npu_train::byte_tokens("the old dog ");  // npu_train/data/tokens.hpp
///   const auto tokens = npu_train::generate(model, prompt, {.max_new_tokens = 50, .sampling = {.temperature = 0.8}, .seed = 1});
///   std::cout << npu_train::text_of_bytes(tokens);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "npu_train/core/seed.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train {

/// Options for drawing a token from logits.
struct SamplingOptions {
  double temperature = 1;  ///< divides the logits; 0: always the token with the largest logit ("greedy")
  int64_t top_k = 0;       ///< draws only among the k most probable tokens; 0: all
  /// Draws among the smallest set of most probable tokens whose probabilities sum to at least this share (Holtzman et al., "The Curious
  /// Case of Neural Text Degeneration", ICLR 2020). Applied after top_k, to the probabilities of the remaining tokens.
  double top_p = 1;
  /// Lowers the probability of tokens that the text already contains: divides their positive logits by this factor, and multiplies negative
  /// ones by it (Keskar et al., "CTRL", 2019). 1: no effect. generate() applies it before the temperature.
  double repetition_penalty = 1;
};

struct GenerateOptions {
  int64_t max_new_tokens = 100;
  SamplingOptions sampling{};
  uint64_t seed = 0;  ///< seed of the draws; equal seeds give equal tokens for equal logits
  /// true: caches keys and values; false: recomputes the logits of all tokens for each new one, which is slow and gives the same result.
  bool key_value_cache = true;
  /// Called with each new token; false ends the generation. Only generate() calls it.
  std::function<bool(int64_t token)> on_token{};
};

/// Draws a token id from logits [vocabulary] of any dtype and device. Among equal logits, the lower id comes first. Error(Usage) for
/// options out of range, Error(Data) for logits that are not numbers.
int64_t sample_token(const at::Tensor& logits, const SamplingOptions& options, Philox& random);

/// Returns the new tokens after `prompt`. Runs in evaluation mode, without gradients, on the model's device. If the model limits the length
/// of its input (the usual size of "tokens"), it receives the last tokens that fit, so that generation can continue; from that length on,
/// each token takes a complete forward. Error(Usage) for an empty prompt, for tokens outside of the vocabulary, and for a model whose input
/// is not token ids.
std::vector<int64_t> generate(const Model& model, const std::vector<int64_t>& prompt, const GenerateOptions& options = {});

/// Returns the new tokens after each of several prompts, which are the rows of a batch. Each row has the same draws as generate() with its
/// prompt alone and, except for rounding, the same logits. `on_token` is called with each new token of a row; if it returns false, the row
/// ends. An ended row stays in the batch and is computed until all rows have ended. If a row is longer than the model's input, each token
/// of each row takes a complete forward. Error(Usage) as for generate(), if there are no prompts, and for a model that continues one text
/// at a time (without Model::start_batch), unless key_value_cache is false.
std::vector<std::vector<int64_t>> generate_batch(const Model& model, const std::vector<std::vector<int64_t>>& prompts,
                                                 const GenerateOptions& options = {},
                                                 const std::function<bool(size_t row, int64_t token)>& on_token = {});

}  // namespace npu_train
