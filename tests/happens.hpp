/// Waits for a state, so that a test depends neither on time nor on load.
#pragma once

#include <chrono>
#include <thread>

namespace npu_train::testing {

/// Returns whether `condition` is true now or later. Polls it; the time limit only prevents a fault from blocking the tests.
template <class Fn>
bool happens(Fn&& condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace npu_train::testing
