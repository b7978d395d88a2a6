/// Gathers the features of other ranks' samples, for a loss that compares each sample with those of all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace npu_train {

/// The rows of all ranks.
struct GatheredRows {
  at::Tensor rows;    ///< [all, features], in rank order
  int64_t first = 0;  ///< index of this rank's first row
};

/// Gathers the rows [n, features] (floating point) of all ranks without rounding; returns `own` outside of a RankGather. In the backward,
/// the own rows receive their gradient times all / n, those of other ranks none. If every rank computes the same loss over all rows and
/// weights it by n / all, the ranks' gradients sum to those of one process with all samples. Error(Usage) for empty rows, and Error(Peer)
/// if another rank has a different number of features.
GatheredRows gathered(const at::Tensor& own);

/// During its lifetime, gathered() on this thread communicates with the other ranks. TrainStep opens one around each forward of a task that
/// compares samples across ranks (train/compares_ranks.hpp). All ranks must call gathered() equally often per round of micro-batches.
class RankGather {
 public:
  /// Sends numbers to the other ranks and returns those of all ranks, in rank order; empty for a rank without a batch in this round.
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
