// How many classes numeric labels may mean.
#pragma once

#include <cstdint>
#include <string>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {

// A single label that is wrong would make a head of any size. Some data have fewer samples than classes, as a small part of ImageNet.
constexpr int64_t kClassesOfFewSamples = 10'000, kClassesPerSample = 10;

// Error(Data) if the largest label, which `where` names, makes the classes far more than the samples.
inline void check_number_of_classes(int64_t classes, int64_t samples, const std::string& where) {
  check(classes <= kClassesOfFewSamples || classes / kClassesPerSample <= samples, ErrorKind::Data, "data", where, ": the label is ",
        classes - 1, ", so that there would be ", with_commas(classes), " classes, and there are ", with_commas(samples),
        " samples; allowed: ", with_commas(kClassesOfFewSamples), " classes, or ", kClassesPerSample,
        " for each sample; hint: number the classes from 0 without gaps, or use names as labels");
}

}  // namespace npu_train::detail
