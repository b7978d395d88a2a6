// Keeps the repetition of a forward from changing values, such as running statistics, a second time.
#pragma once

#include <utility>
#include <vector>

#include "npu_train/nn/norm_watch.hpp"

namespace npu_train::detail {

// Restores tensors in its destructor to their values at construction: `buffers`, and automatically the running statistics and counters of
// all normalisation layers that this thread has run meanwhile.
class Unmoved final : private NormWatch {
 public:
  explicit Unmoved(const std::vector<at::Tensor>& buffers);
  ~Unmoved() override;

 private:
  void on_norm(const Statistics& statistics) override;
  void keep(const at::Tensor& t);
  bool has(const at::Tensor& t) const;

  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;  // tensors and their saved values
};

}  // namespace npu_train::detail
