/// Units of sharded parameters: parts of a model whose parameters are complete only while they are needed (ZeRO-3: Rajbhandari et al. 2020,
/// arXiv:1910.02054; fully sharded data parallel: Zhao et al. 2023, arXiv:2304.11277).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace npu_train {

/// Parameters that are gathered and released together. Parameters in no unit are complete from a window's first forward pass to its end.
struct ParameterUnit {
  std::string name;                       ///< for messages: "blocks.3"
  std::vector<std::string> parameters{};  ///< names; parameters that are not trained stay complete on every rank
};

/// The computation of a unit.
using UnitForward = std::function<at::Tensor(const at::Tensor&)>;

}  // namespace npu_train
