// Which gradients travel together: parameters in buckets, each a flat buffer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train::detail {

// The tensor that the model computes with.
inline const at::Tensor& in_model(const Parameter& p) { return p.computed.defined() ? p.computed : p.value; }

struct FlatPiece {
  size_t parameter;  // its index in the set
  int64_t offset;    // of its first element; a multiple of 64
  int64_t numel;
};

struct FlatBucket {
  at::TensorOptions options{};  // device and dtype of all its parameters
  std::vector<FlatPiece> pieces{};
  int64_t numel = 0;  // padded: a multiple of 64 elements x ranks, so that the part of each rank starts at a block of 64

  // What part `rank` of `ranks` has of a piece, counted from the piece's first element; {0, 0} if it has none.
  struct Range {
    int64_t begin, numel;
  };
  Range range_of_rank(const FlatPiece& piece, int rank, int ranks) const;
  // Where the range is in a flat buffer of that part alone.
  int64_t offset_in_part(const FlatPiece& piece, int rank, int ranks) const;

  // What a rank sends when each gives its part to all others, in elements of a size.
  int64_t bytes_to_others(int ranks, size_t element_size) const;

  // The piece within `flat`, with the strides of the parameter.
  static at::Tensor view(const at::Tensor& flat, const FlatPiece& piece, const at::Tensor& parameter);
};

// Buckets of parameters of one device and dtype, also of the tensors that the model computes with, in the reverse order of the set: the
// order in which a backward pass gives gradients, nearly. A bucket is closed when it has `bucket_bytes`; the first one at an eighth of
// that, so that sending starts early. The layout depends only on the arguments: it is the same on every rank. With `owners`, a rank for
// each parameter, a piece is complete in the part of its owner; parts are padded to the largest one.
std::vector<FlatBucket> flat_layout(const ParameterSet& parameters, int ranks, int64_t bucket_bytes, const std::vector<int>& owners = {});

// The same where parameters are brought and released by units: buckets of one unit each, in the reverse order of units. `unit_of` has an
// index for each parameter.
std::vector<FlatBucket> unit_layout(const ParameterSet& parameters, int ranks, const std::vector<size_t>& unit_of);

}  // namespace npu_train::detail
