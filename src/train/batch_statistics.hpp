// Running statistics as means over batches, instead of moving averages.
#pragma once

#include <functional>
#include <vector>

#include "npu_train/dist/ranks.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train::detail {

// Collects the statistics that normalisation layers measure in the passes of this thread. It does not change the statistics of layers with
// momentum 0, or buffers that the task does not list.
class BatchStatistics {
 public:
  explicit BatchStatistics(std::vector<NamedTensor> buffers);

  // Calls `forward` for one batch.
  void collect(const std::function<void()>& forward);
  // Whether a layer has measured something on this rank.
  bool any() const;
  // Forgets all batches, and restores the buffers that no layer has measured. Later results depend neither on the values of the measured
  // buffers nor on changes that earlier passes made in other buffers.
  void begin_again();
  // Sets the measured buffers to the means over the batches of all ranks, and restores the others to their values at construction. Every
  // rank must call it.
  void write(Ranks& ranks);

 private:
  std::vector<NamedTensor> buffers_;
  std::vector<at::Tensor> before_;  // values of the buffers at construction
  // Sums of the fp32 values of each buffer, on the host. Sums of similar fp32 values are exact in fp64, so that they do not depend on how
  // the batches are divided among ranks.
  std::vector<std::vector<double>> sums_;
  std::vector<double> counts_;
};

}  // namespace npu_train::detail
