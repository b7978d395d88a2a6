/// A registered model with initial weights that one seed decides.
#pragma once

#include <cstdint>

#include "npu_train/engine/parts.hpp"

namespace npu_train {

/// The model that `part` names. Its initial weights follow from `seed` alone, whatever other threads draw; they are those that
/// torch::manual_seed(seed) gives in a program of one thread. The CPU's default generator continues where they end, as if it had drawn
/// them. Errors: those of the model's factory.
Model make_model(const PartConfig& part, const Parts& parts, uint64_t seed);

}  // namespace npu_train
