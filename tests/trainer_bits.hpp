/// The state that a skipped step must not change.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "npu_train/base/state.hpp"
#include "npu_train/engine/trainer.hpp"

namespace npu_train::testing {

/// Returns digests by name: parameters, BatchNorm's statistics and counters, momentum, average.
inline std::map<std::string, uint64_t> bits_of(Trainer& trainer) {
  const auto state = trainer.state();
  std::map<std::string, uint64_t> out;
  for (const std::string part : {"model", "optimizer", "ema"})
    for (const auto& [name, tensor] : state.at(part).tensors) out[part + "/" + name] = digest(tensor);
  return out;
}

}  // namespace npu_train::testing
