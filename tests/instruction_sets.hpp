/// Selects Highway kernels by instruction set, among those for which they are compiled and that this machine has.
#pragma once

#include <doctest/doctest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace npu_train::testing {

/// Returns the kernels that `get` returns for each instruction set, first those for the baseline. Fails on a machine with AVX2 if there is
/// only the baseline, because the compiler then left the other sets out. No other thread may use Highway kernels during the call.
template <class Kernels>
std::vector<std::pair<std::string, const Kernels*>> all_instruction_sets(const Kernels& (*get)()) {
  auto& chosen = hwy::GetChosenTarget();
  chosen.Update(0);
  std::vector<std::pair<std::string, const Kernels*>> out = {{"baseline", &get()}};
  for (int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    chosen.Update(target);  // selects the baseline again if there are no kernels for this set
    const bool known = std::any_of(out.begin(), out.end(), [&](const auto& set) { return set.second == &get(); });
    if (!known) out.emplace_back(hwy::TargetName(target), &get());
  }
  CHECK((out.size() > 1 || (hwy::SupportedTargets() & HWY_AVX2) == 0));
  chosen.DeInit();  // lets the next call choose again
  return out;
}

}  // namespace npu_train::testing
