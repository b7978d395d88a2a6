/// Tasks whose loss compares samples with those of other ranks.
#pragma once

namespace npu_train {

/// Additional base class of a Task that calls gathered() (nn/rank_gather.hpp) in its training_step(), equally often for every micro-batch.
/// In training over several ranks, the ForwardContext gives access to the other ranks. In validation it does not, so that the results of a
/// validation do not depend on the number of ranks.
class ComparesRanks {
 public:
  virtual ~ComparesRanks() = default;
};

}  // namespace npu_train
