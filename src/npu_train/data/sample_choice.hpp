/// Which training samples an epoch has: what data.sampler chooses, or the program.
#pragma once

#include <cstdint>
#include <vector>

#include "npu_train/data/datasets.hpp"

namespace npu_train::detail {

/// At most one is not empty: see SamplerOptions.
struct SampleChoice {
  std::vector<double> weights;
  std::vector<int64_t> subset;
};

/// Returns the choice of a pair whose training data are no stream. Error(Usage) for a sampler together with a choice in code and for a
/// sampler that does not fit the data; Error(Data) for a sampler_file that cannot be read or does not fit them.
SampleChoice sample_choice(const DatasetPair& pair);

/// Returns the sampler of a loader with these options and another seed.
DistributedSampler sampler_of(const LoaderOptions& options, int64_t size, uint64_t seed);

}  // namespace npu_train::detail
