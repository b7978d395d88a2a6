/// Tasks whose loss compares samples with those of other ranks.
#pragma once

namespace npu_train {

/// A Task that derives from this too may call gathered() (nn/rank_gather.hpp) in its training_step(), equally often for every micro-batch:
/// a training over several ranks then has the rows of all of them there. A validation_step() sees its own batch alone, so the numbers of a
/// validation do not depend on the number of ranks.
class ComparesRanks {
 public:
  virtual ~ComparesRanks() = default;
};

}  // namespace npu_train
