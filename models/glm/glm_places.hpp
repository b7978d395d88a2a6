// Which tokens a token of GLM sees, and the rotations of its two positions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <utility>

#include "npu_train/models/glm.hpp"

namespace npu_train::detail {

// Of the last tokens of N sequences, as queries of the attention.
struct GlmPlaces {
  at::Tensor visible;   // bool [N, 1, queries, tokens]: the tokens that each may attend to
  at::Tensor cos, sin;  // fp32 [N, 1, queries, 2, head_size / 4], of the first and of the second position
};

class GlmPlaceTable {
 public:
  explicit GlmPlaceTable(const GlmOptions& options);

  // Of tokens [N, T] without the first `before`. Only operators on tensors: the host does not wait for a device.
  GlmPlaces operator()(const at::Tensor& tokens, int64_t before = 0) const;

 private:
  at::Tensor first_positions(const at::Tensor& tokens, const at::Tensor& started, const at::Tensor& prefix) const;
  std::pair<at::Tensor, at::Tensor> tables(at::Device device) const;

  int64_t bos_, gmask_, mask_;
  mutable std::mutex mutex_;      // of the tables: predictions may come from several threads
  mutable at::Tensor cos_, sin_;  // fp32 [context + 1, head_size / 4], on the device of the last call
};

// x [N, heads, tokens, head_size] with both halves rotated, each in the form of Llama: of a half, component i of its first half and of its
// second one are turned together. In the dtype of x.
at::Tensor rotated_in_halves(const at::Tensor& x, const GlmPlaces& places);

}  // namespace npu_train::detail
