/// Features of the samples of other ranks, in the forward of a loss that compares each sample with all of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace npu_train {

/// Rows of all ranks.
struct GatheredRows {
  at::Tensor rows;    ///< [all, features], in the order of ranks
  int64_t first = 0;  ///< where this rank's own rows begin
};

/// The rows [n, features] (floating point) of all ranks; `own` itself outside of a RankGather. Numbers travel exactly. In the backward the
/// own rows get their gradient times all / n, and those of other ranks none. So if every rank computes the same loss of all rows and gives
/// it the weight n / all, the sum of the ranks' gradients is that of this loss, as one process with the samples of all ranks computes it.
/// Error(Usage) for no rows, and Error(Peer) if the rows of a rank have other features.
GatheredRows gathered(const at::Tensor& own);

/// While one lives, gathered() of this thread reaches the other ranks. TrainStep makes one around each forward of a task that compares
/// samples across ranks (train/compares_ranks.hpp). Every rank calls gathered() equally often in a round of micro-batches.
class RankGather {
 public:
  /// Gives numbers to the other ranks, and returns those of every rank, in the order of ranks. Empty: that rank has no batch in this round.
  using Gather = std::function<std::vector<std::vector<double>>(const std::vector<double>& own)>;

  RankGather(Gather gather, int rank);
  ~RankGather();
  RankGather(const RankGather&) = delete;
  RankGather& operator=(const RankGather&) = delete;

 private:
  friend GatheredRows gathered(const at::Tensor& own);
  struct Ranks;
  std::shared_ptr<const Ranks> before_;
};

}  // namespace npu_train
