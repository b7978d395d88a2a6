// The collectives of one gradient bucket, as called by Bucket, GroupedSum and the compressors of room dist.
#pragma once

#include <cstdint>
#include <vector>

#include "npu_train/tools/plan/step_calls.hpp"

namespace npu_train::detail {

struct BucketSize {
  int64_t elements = 0, element_bytes = 4, model_bytes = 4;  // elements: including padding
  bool has_master = false;
  double ready = 0;
  size_t unit = 0;
  std::vector<size_t> parameters{};
  int64_t bytes() const { return elements * element_bytes; }
};

inline int64_t padded_to(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

class BucketCalls {
 public:
  // `dist` must be resolved.
  BucketCalls(const StepWork& work, const DistOptions& dist, const Placement& placement, Sharding sharding);

  StepCalls::Bucket of(const BucketSize& size) const;
  // Returns the number of equal parts into which each bucket must be divisible.
  int divided_by() const;

 private:
  // The ranks whose values are added. `in_shards`: each rank keeps only its part of the sums.
  struct Adding {
    int ranks, stride;
    bool in_shards, leaders;
  };
  StepCall call(StepCall::Kind kind, int64_t bytes, const Adding& by) const;
  std::vector<StepCall> sum(const BucketSize& size, const Adding& by) const;
  std::vector<StepCall> scattered(const BucketSize& size, const Adding& by) const;
  void add_coded(int64_t of_part, const Adding& by, bool gathers, std::vector<StepCall>& out) const;
  std::vector<StepCall> compressed(const BucketSize& size, const Adding& by) const;
  std::vector<StepCall> low_rank(const BucketSize& size, const Adding& by) const;
  std::vector<StepCall> grouped(const BucketSize& size) const;

  const StepWork& work_;
  const DistOptions& dist_;
  const Placement& placement_;
  bool in_shards_;
  Compression compression_;
};

}  // namespace npu_train::detail
