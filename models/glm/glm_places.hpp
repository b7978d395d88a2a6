// Attention masks and the rotations of both positions of GLM's tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <utility>

#include "npu_train/models/glm.hpp"

namespace npu_train::detail {

// Masks and rotations of the last tokens of N sequences, the queries of the attention.
struct GlmPlaces {
  at::Tensor visible;   // bool [N, 1, queries, tokens]: true for tokens that a query attends to
  at::Tensor cos, sin;  // fp32 [N, 1, queries, 2, head_size / 4], for the first and the second position
};

class GlmPlaceTable {
 public:
  explicit GlmPlaceTable(const GlmOptions& options);

  // Computes the places of tokens [N, T] after the first `before`. Uses only tensor operators, so the host does not wait for a device.
  GlmPlaces operator()(const at::Tensor& tokens, int64_t before = 0) const;

 private:
  at::Tensor first_positions(const at::Tensor& tokens, const at::Tensor& started, const at::Tensor& prefix) const;
  std::pair<at::Tensor, at::Tensor> tables(at::Device device) const;

  int64_t bos_, gmask_, mask_;
  mutable std::mutex mutex_;      // protects the tables: several threads may predict at once
  mutable at::Tensor cos_, sin_;  // fp32 [context + 1, head_size / 4], on the device of the last call
};

// Rotates both halves of x [N, heads, tokens, head_size], each in Llama's layout: component i of a half's first half and component i of its
// second half are rotated as a pair. Returns the dtype of x.
at::Tensor rotated_in_halves(const at::Tensor& x, const GlmPlaces& places);

}  // namespace npu_train::detail
