// A limit on the number of classes that numeric labels imply.
#pragma once

#include <cstdint>
#include <string>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {

// Without a limit, a single wrong label would create a head of any size. Data may have fewer samples than classes (a small part of
// ImageNet).
constexpr int64_t kClassesOfFewSamples = 10'000, kClassesPerSample = 10;

// Error(Data) if the largest label, found at `where`, implies far more classes than there are samples.
inline void check_number_of_classes(int64_t classes, int64_t samples, const std::string& where) {
  check(classes <= kClassesOfFewSamples || classes / kClassesPerSample <= samples, ErrorKind::Data, "data", where, ": the label is ",
        classes - 1, ", so that there would be ", with_commas(classes), " classes, and there are ", with_commas(samples),
        " samples; allowed: ", with_commas(kClassesOfFewSamples), " classes, or ", kClassesPerSample,
        " for each sample; hint: number the classes from 0 without gaps, or use names as labels");
}

}  // namespace npu_train::detail
