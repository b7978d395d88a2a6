// Values that a forward may change and that its repetition must not.
#pragma once

#include <utility>
#include <vector>

#include "npu_train/nn/norm_watch.hpp"

namespace npu_train::detail {

// Restores tensors at its end to their present values: `buffers`, and the running statistics and counters of all normalisation layers that
// this thread runs meanwhile, without naming them.
class Unmoved final : private NormWatch {
 public:
  explicit Unmoved(const std::vector<at::Tensor>& buffers);
  ~Unmoved() override;

 private:
  void on_norm(const Statistics& statistics) override;
  void keep(const at::Tensor& t);
  bool has(const at::Tensor& t) const;

  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;  // and values
};

}  // namespace npu_train::detail
