// Reads every sample of a data set, on up to 16 cores.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "npu_train/data/image_stream.hpp"
#include "npu_train/tools/probe/data_stats.hpp"

namespace npu_train::detail {

/// Calls use(i) for each i from 0 to count - 1, on up to 16 threads. `use` must not throw. `begun` is called only on the calling thread,
/// with the number of samples that have been started.
void each_sample(int64_t count, const std::function<void(int64_t)>& use, const std::function<void(int64_t)>& begun);

/// Calls use(i, image) for the remaining images of a stream, on up to 16 threads; only the places of the images are read in sequence. If
/// the stream throws an exception in place of an image, calls failed(i) in a handler of the exception. Neither function may throw. Returns
/// the number of images and exceptions.
int64_t each_image(ImageStream& stream, const std::function<void(int64_t, const PendingImage&)>& use,
                   const std::function<void(int64_t)>& failed);

/// Returns the classes of a sample; empty if its target is not a class.
std::vector<int64_t> labels_of(const Sample& sample, int64_t classes);

/// Reads every sample of both splits and returns their statistics. Pixels are counted after the transforms of `pipeline`, before its
/// normalisation. If `pipeline` is nullptr, images are only decoded; their pixels, sizes and modes are not counted.
DataStatistics count_samples(const DatasetPair& pair, const Pipeline* pipeline, uint64_t seed,
                             const std::function<void(int64_t done, int64_t all)>& progress);

}  // namespace npu_train::detail
