// Padding of the first dimension, for samples of different length: boxes, points and texts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/data/dataset.hpp"

namespace npu_train::detail {

// Returns the field of a sample; nullptr if the sample does not have it.
at::Tensor* find_field(Sample& sample, const std::string& name);
const at::Tensor* find_field(const Sample& sample, const std::string& name);

// Returns `values` padded to `length` rows, which must not be fewer than its own. The added rows are filled with the number `with`.
at::Tensor padded(const at::Tensor& values, int64_t length, double with);

// Pads the first dimension of a field to `length` elements in all samples. Every sample must have the field, with at most `length`
// elements. Adds the field `mask` to each sample, int64 [length]: 1 for an element of the sample, 0 for padding.
void pad_field(std::vector<Sample>& samples, const std::string& field, double value, int64_t length, const std::string& mask);

}  // namespace npu_train::detail
