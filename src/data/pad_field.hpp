// Padding of the first dimension, which boxes, points and texts have in different lengths.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/data/dataset.hpp"

namespace npu_train::detail {

// Returns the field of a sample; nullptr if it has none.
at::Tensor* find_field(Sample& sample, const std::string& name);
const at::Tensor* find_field(const Sample& sample, const std::string& name);

// Returns the values with `length` rows, at least as many as they have; the rows added are filled.
at::Tensor padded(const at::Tensor& values, int64_t length, double with);

// Pads the first dimension of a field, which every sample has with at most `length` elements, and adds its mask to the samples as the field
// `mask`, int64 [length]: 1 for an element of the sample, 0 for padding.
void pad_field(std::vector<Sample>& samples, const std::string& field, double value, int64_t length, const std::string& mask);

}  // namespace npu_train::detail
