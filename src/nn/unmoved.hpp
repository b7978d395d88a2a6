// Values that a forward may change and that its repetition must not.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <memory>
#include <utility>
#include <vector>

namespace npu_train::detail {

// Restores tensors at its end to their present values: `buffers`, and the running statistics and counters of all normalisation layers that
// this thread runs meanwhile, without naming them.
class Unmoved {
 public:
  explicit Unmoved(const std::vector<at::Tensor>& buffers);
  ~Unmoved();
  Unmoved(const Unmoved&) = delete;
  Unmoved& operator=(const Unmoved&) = delete;

 private:
  void keep(const at::Tensor& t);
  bool has(const at::Tensor& t) const;
  static std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& fn);

  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;  // and values
  std::pair<at::Tensor, at::Tensor> counter_;            // the last integer that was added to
  at::CallbackHandle handle_;
  Unmoved* before_;
};

}  // namespace npu_train::detail
