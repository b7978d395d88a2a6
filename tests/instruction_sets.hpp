/// Kernels written with Highway, for each instruction set that they are compiled for and this machine has.
#pragma once

#include <doctest/doctest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace npu_train::testing {

/// The sets of kernels that `get` returns, by instruction set; the first one is what every machine has. Fails if there is no
/// other on a machine with AVX2: then the compiler left them out. Not while another thread uses some.
template <class Kernels>
std::vector<std::pair<std::string, const Kernels*>> all_instruction_sets(const Kernels& (*get)()) {
  auto& chosen = hwy::GetChosenTarget();
  chosen.Update(0);
  std::vector<std::pair<std::string, const Kernels*>> out = {{"baseline", &get()}};
  for (int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    chosen.Update(target);  // the baseline again if they are not compiled for it
    const bool known = std::any_of(out.begin(), out.end(), [&](const auto& set) { return set.second == &get(); });
    if (!known) out.emplace_back(hwy::TargetName(target), &get());
  }
  CHECK((out.size() > 1 || (hwy::SupportedTargets() & HWY_AVX2) == 0));
  chosen.DeInit();  // the next call chooses again
  return out;
}

}  // namespace npu_train::testing
