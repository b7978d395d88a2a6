// A model whose blocks bring their parameters where these are in shards.
#pragma once

#include <memory>

#include "npu_train/dist/strategy.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train {

// Each block becomes a unit of `strategy`, with the parameters of its module; those that several blocks use, and those outside of blocks,
// belong to none. The model itself if parameters are not in shards, or it has no blocks.
Model in_units(Model model, const std::shared_ptr<Strategy>& strategy);

}  // namespace npu_train
