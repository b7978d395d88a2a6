// Loss curves for tests of histories.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "npu_train/tools/align/history.hpp"

namespace npu_train::testing {

// Returns a run of `n` steps from its loss and rate at each step.
inline History curve(int64_t n, const std::function<double(int64_t)>& loss, const std::function<double(int64_t)>& lr = nullptr) {
  History out;
  out.source = "curve";
  for (int64_t i = 0; i < n; ++i) {
    out.step.push_back(i);
    out.loss.push_back(loss(i));
    if (lr) out.lr.push_back(lr(i));
  }
  return out;
}

// Returns the loss at step i of a curve like that of a classifier with ten classes, with the scatter that batches cause.
inline double falling(int64_t i) {
  return 0.3 + 2.0 * std::exp(-0.03 * static_cast<double>(i)) + 0.05 * std::sin(static_cast<double>(i * i));
}

inline bool any_has(const std::vector<std::string>& texts, const std::string& part) {
  for (const auto& text : texts)
    if (text.find(part) != std::string::npos) return true;
  return false;
}

}  // namespace npu_train::testing
