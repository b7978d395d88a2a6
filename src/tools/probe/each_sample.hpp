// Reads every sample of a data set, on up to 16 cores.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "npu_train/data/image_stream.hpp"
#include "npu_train/tools/probe/data_stats.hpp"

namespace npu_train::detail {

/// Calls use(i) for each i from 0 to count - 1, on up to 16 threads. `use` must not throw. `begun` is called on the calling thread alone,
/// with the number of samples that have begun.
void each_sample(int64_t count, const std::function<void(int64_t)>& use, const std::function<void(int64_t)>& begun);

/// Calls use(i, image) for the images of a stream from where it is, on up to 16 threads: only their places are read in sequence. Calls
/// failed(i) in a handler of the exception if the stream has one in place of an image. Neither may throw. Returns the number of both.
int64_t each_image(ImageStream& stream, const std::function<void(int64_t, const PendingImage&)>& use,
                   const std::function<void(int64_t)>& failed);

/// Returns the classes of a sample, none if its target is no class.
std::vector<int64_t> labels_of(const Sample& sample, int64_t classes);

/// Reads every sample of both splits and counts what the statistics have. Pixels are counted after `pipeline`, before its normalisation.
/// nullptr: images are only decoded, and neither their pixels nor how they are stored are counted.
DataStatistics count_samples(const DatasetPair& pair, const Pipeline* pipeline, uint64_t seed,
                             const std::function<void(int64_t done, int64_t all)>& progress);

}  // namespace npu_train::detail
