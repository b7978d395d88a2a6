// Layout of gradient buckets: which parameters share a flat buffer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train::detail {

// Returns the tensor that the model computes with.
inline const at::Tensor& in_model(const Parameter& p) { return p.computed.defined() ? p.computed : p.value; }

struct FlatPiece {
  size_t parameter;  // index in the parameter set
  int64_t offset;    // position of the first element; a multiple of 64
  int64_t numel;
};

struct FlatBucket {
  at::TensorOptions options{};  // device and dtype of all its parameters
  std::vector<FlatPiece> pieces{};
  int64_t numel = 0;  // padded to a multiple of 64 elements x ranks, so that the part of each rank starts at a block of 64

  // The range of a piece's elements that are in part `rank` of `ranks`, counted from the first element of the piece; {0, 0} if there are
  // none.
  struct Range {
    int64_t begin, numel;
  };
  Range range_of_rank(const FlatPiece& piece, int rank, int ranks) const;
  // Returns the offset of range_of_rank() in a flat buffer that has only the part of `rank`.
  int64_t offset_in_part(const FlatPiece& piece, int rank, int ranks) const;

  // Returns the bytes that a rank sends when it gives its part to all others, with elements of this size.
  int64_t bytes_to_others(int ranks, size_t element_size) const;

  // Returns a view of the piece in `flat`, with the strides of the parameter.
  static at::Tensor view(const at::Tensor& flat, const FlatPiece& piece, const at::Tensor& parameter);
};

// Divides parameters into buckets, each for one device, one dtype, and one dtype of the tensors that the model computes with. Buckets are
// in the reverse order of the set, which is nearly the order in which a backward pass produces gradients. A bucket is closed at
// `bucket_bytes`; the first one at an eighth of that, so that sending starts early. The layout depends only on the arguments, so it is the
// same on every rank. `owners` gives a rank for each parameter: each piece is then entirely in the part of its owner, and parts are padded
// to the size of the largest one.
std::vector<FlatBucket> flat_layout(const ParameterSet& parameters, int ranks, int64_t bucket_bytes, const std::vector<int>& owners = {});

// Returns the layout for parameters that are gathered and released by units: each bucket belongs to one unit, in the reverse order of
// units. `unit_of`: the unit of each parameter.
std::vector<FlatBucket> unit_layout(const ParameterSet& parameters, int ranks, const std::vector<size_t>& unit_of);

}  // namespace npu_train::detail
