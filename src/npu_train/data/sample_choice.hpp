/// Which training samples an epoch has, as data.sampler or the program chooses.
#pragma once

#include <cstdint>
#include <vector>

#include "npu_train/data/datasets.hpp"

namespace npu_train::detail {

/// See SamplerOptions. At most one of the two is not empty.
struct SampleChoice {
  std::vector<double> weights;
  std::vector<int64_t> subset;
};

/// Returns the choice of a pair; an empty one for a stream. Error(Usage) for a data.sampler that does not fit the data or is given together
/// with a choice in code, and for a choice in code that DistributedSampler does not accept. Error(Data) for a sampler_file that cannot be
/// read or does not fit the data.
SampleChoice sample_choice(const DatasetPair& pair);

/// Returns the sampler of a loader with these options for `size` samples, with `seed` instead of the seed of the options.
DistributedSampler sampler_of(const LoaderOptions& options, int64_t size, uint64_t seed);

}  // namespace npu_train::detail
