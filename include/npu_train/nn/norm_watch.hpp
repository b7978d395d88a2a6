/// The running statistics of the normalisation layers that a thread runs.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <memory>
#include <optional>

namespace npu_train::detail {

/// While it lives, on_norm() gets the statistics of each batch_norm and instance_norm that this thread runs, before they move. Several may
/// be alive, nested as scopes are; each gets all.
class NormWatch {
 public:
  NormWatch();
  virtual ~NormWatch();
  NormWatch(const NormWatch&) = delete;
  NormWatch& operator=(const NormWatch&) = delete;

 protected:
  struct Statistics {
    at::Tensor mean, variance;  ///< undefined in a layer without running statistics
    at::Tensor counter, count;  ///< the layer's counter of batches, incremented already, and its value before; undefined if it has none
    std::optional<double> momentum{};  ///< if an operator of libtorch is going to move them; nothing for npu_train's own, in evaluation
  };
  virtual void on_norm(const Statistics& statistics) = 0;

 private:
  static std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& fn);

  NormWatch* outer_;
  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;
};

}  // namespace npu_train::detail
