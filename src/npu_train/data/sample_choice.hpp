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

/// Returns what a pair chooses; nothing of a stream. Error(Usage) for a sampler that does not fit the data or is given together with a
/// choice in code, and for such a choice that no sampler accepts; Error(Data) for a sampler_file that cannot be read or does not fit.
SampleChoice sample_choice(const DatasetPair& pair);

/// Returns the sampler of a loader with these options and another seed.
DistributedSampler sampler_of(const LoaderOptions& options, int64_t size, uint64_t seed);

}  // namespace npu_train::detail
