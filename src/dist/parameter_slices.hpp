// The slices of parameters that the optimizer of each rank updates, and the gathers that make parameters complete again on all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dist/bucket.hpp"
#include "dist/parameter_units.hpp"
#include "dist/rank_groups.hpp"
#include "npu_train/base/parameter_set.hpp"

namespace npu_train::detail {

class ParameterSlices {
 public:
  // `units`: the object that has sharded the parameters; nullptr if they are not sharded.
  ParameterSlices(const ParameterSet& parameters, const std::vector<Bucket>& buckets, ParameterUnits* units, const ShardGroups& groups,
                  Sharding sharding, bool between_devices);

  // Returns the slices in the order of the parameters; without shards the parameters themselves.
  const ParameterSet& own() const { return own_; }
  // These functions implement the functions of GradientReducer with the same names. gather_parameters() returns the bytes that this rank
  // sends.
  void unshard_parameters() const;
  int64_t gather_parameters() const;
  void gather(const std::vector<at::Tensor>& slices, const std::vector<at::Tensor>& whole) const;

 private:
  ParameterSet divided() const;
  // `travels_in` returns the dtype in which a bucket is sent.
  void gather_buckets(const std::vector<at::Tensor>& slices, const std::vector<at::Tensor>& whole,
                      const std::function<at::ScalarType(const FlatBucket&)>& travels_in) const;

  const ParameterSet& parameters_;
  const std::vector<Bucket>& buckets_;
  ParameterUnits* units_;
  const ShardGroups& groups_;
  Sharding sharding_;
  bool between_devices_;
  ParameterSet own_;
};

// Sharded masters: each rank keeps a slice of each master, but the complete tensors that the model computes with.

// Returns a tensor with the sizes and strides of `like` but without memory; an access throws an error of libtorch with the text `why_not`.
at::Tensor without_memory(const at::Tensor& like, const at::TensorOptions& options, const std::string& why_not);

// Returns a tensor without memory that replaces a parameter's master, of which this rank keeps a slice.
at::Tensor divided_master(const Parameter& parameter, const at::TensorOptions& options);

// Copies the slices of masters to memory of their own, one after the other, and frees the memory of the masters.
void divide_masters(const ParameterSet& parameters, ParameterSet& slices);

// Gives masters memory again, with undefined content. Returns the master of each parameter, or an undefined tensor if it has none.
std::vector<at::Tensor> masters_with_memory(const ParameterSet& parameters);

}  // namespace npu_train::detail
