// For tests of kernels that Highway compiles for several instruction sets.
#pragma once

#include <hwy/targets.h>

#include <string>
#include <utility>
#include <vector>

namespace npu_train::detail {

// What chosen() returns, a pointer, for each instruction set that this machine has, each once. Not while another thread uses kernels.
template <class Fn>
auto of_all_instruction_sets(Fn chosen) {
  auto& target = hwy::GetChosenTarget();
  target.Update(0);  // what every machine has
  std::vector<std::pair<std::string, decltype(chosen())>> out = {{"baseline", chosen()}};
  for (const int64_t supported : hwy::SupportedAndGeneratedTargets()) {
    target.Update(supported);
    if (const auto kernels = chosen(); kernels != out.front().second) out.emplace_back(hwy::TargetName(supported), kernels);
  }
  target.DeInit();  // the next call chooses again
  return out;
}

}  // namespace npu_train::detail
