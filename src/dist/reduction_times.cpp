#include "npu_train/dist/reduction_times.hpp"

#include <algorithm>
#include <cmath>

namespace npu_train {

int64_t ReductionTimes::bytes() const {
  int64_t sum = 0;
  for (const auto& b : buckets) sum += b.bytes;
  return sum;
}

int64_t ReductionTimes::between_bytes() const {
  int64_t sum = 0;
  for (const auto& b : buckets) sum += b.between_bytes;
  return sum;
}

double ReductionTimes::communication(double until) const {
  std::vector<Span> spans;
  for (const auto& b : buckets)
    for (const auto& s : {b.exchange, b.between, b.gather})
      if (s.end > s.begin) spans.push_back({s.begin, std::min(s.end, until)});
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  double sum = 0, covered = 0;  // covered: end of the time that has been counted
  for (const auto& s : spans) {
    sum += std::max(0.0, s.end - std::max(s.begin, covered));
    covered = std::max(covered, s.end);
  }
  return sum;
}

double ReductionTimes::hidden() const {
  const double all = communication();
  return all > 0 ? communication(backward) / all : std::nan("");
}

}  // namespace npu_train
