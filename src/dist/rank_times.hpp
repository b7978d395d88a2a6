// Detection of a rank that slows the others down.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace npu_train::detail {

class RankTimes {
 public:
  static constexpr int64_t kSteps = 100;  // steps between reports
  static constexpr double kRatio = 1.3;   // a warning is given if the slowest rank takes more than this multiple of the median

  // Adds the compute seconds of each rank in a step, without waits for others. After each kSteps steps, returns a sentence about the
  // slowest rank if it is slow enough, otherwise "".
  std::string add(const std::vector<double>& seconds);

 private:
  std::vector<double> sums_;
  int64_t steps_ = 0;
};

}  // namespace npu_train::detail
