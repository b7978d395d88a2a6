/// Observes the running statistics of normalisation layers.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <memory>
#include <optional>

namespace npu_train::detail {

/// In its scope, on_norm() receives the statistics of each batch_norm and instance_norm on this thread before the update. If several are
/// nested, all of them are called.
class NormWatch {
 public:
  NormWatch();
  virtual ~NormWatch();
  NormWatch(const NormWatch&) = delete;
  NormWatch& operator=(const NormWatch&) = delete;

 protected:
  struct Statistics {
    at::Tensor mean, variance;  ///< undefined if the layer has no running statistics
    at::Tensor counter, count;  ///< the layer's batch counter, already incremented, and its previous value; undefined if it has none
    std::optional<double>
        momentum{};  ///< set if an operator of libtorch updates the statistics; nullopt for npu_train's own operator, and in evaluation
  };
  virtual void on_norm(const Statistics& statistics) = 0;

 private:
  static std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& fn);

  NormWatch* outer_;
  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;
};

}  // namespace npu_train::detail
