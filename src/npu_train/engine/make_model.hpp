/// A registered model whose initial weights depend on one seed.
#pragma once

#include <cstdint>

#include "npu_train/engine/parts.hpp"

namespace npu_train {

/// Returns the model that `part` names. Its initial weights depend only on `seed`, not on draws of other threads; they equal those after
/// torch::manual_seed(seed) in a single-threaded program. The CPU's default generator advances as if it had drawn the weights. Errors:
/// those of the model's factory.
Model make_model(const PartConfig& part, const Parts& parts, uint64_t seed);

}  // namespace npu_train
