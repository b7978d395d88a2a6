// The collectives of one bucket of gradients, as Bucket, GroupedSum and the compressors of room dist call them.
#pragma once

#include <cstdint>
#include <vector>

#include "npu_train/tools/plan/step_calls.hpp"

namespace npu_train::detail {

struct BucketSize {
  int64_t elements = 0, element_bytes = 4, model_bytes = 4;  // padded
  bool has_master = false;
  double ready = 0;
  size_t unit = 0;
  std::vector<size_t> parameters{};
  int64_t bytes() const { return elements * element_bytes; }
};

inline int64_t padded_to(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

class BucketCalls {
 public:
  // `dist` is resolved.
  BucketCalls(const StepWork& work, const DistOptions& dist, const Placement& placement, Sharding sharding);

  StepCalls::Bucket of(const BucketSize& size) const;
  // Buckets can be divided into as many equal parts.
  int divided_by() const;

 private:
  // Who adds, and how many of them each has a part of the sums alone.
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
  int64_t largest(const BucketSize& size, const Adding& by) const;
  std::vector<StepCall> grouped(const BucketSize& size) const;

  const StepWork& work_;
  const DistOptions& dist_;
  const Placement& placement_;
  bool in_shards_;
  Compression compression_;
};

}  // namespace npu_train::detail
