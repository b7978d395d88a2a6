/// Observes the updates of running statistics by normalisation layers, and records them for ranks that must apply equal updates.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <memory>
#include <optional>
#include <vector>

#include "npu_train/kernels/running_updates.hpp"

namespace npu_train::detail {

/// In its scope, each batch_norm and instance_norm on this thread calls on_norm() with its statistics before it updates them. If several
/// scopes are nested, on_norm() of each is called.
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

/// An update: running = keep * before + added.
using NormMove = RunningUpdates::Update;

/// In its scope, records every update of running statistics on this thread. The layers still apply them.
class NormMoves final : private NormWatch {
 public:
  /// Returns the recorded updates in layer order, and waits for the device. `added` is exact for npu_train's kernel. libtorch's kernels
  /// return only the result, from which `added` is computed, exact up to rounding.
  std::vector<NormMove> take();

 private:
  void on_norm(const Statistics& statistics) override;

  RunningUpdates own_;
};

/// Applies an update to `running` as the layer did, on any device. Error(Peer) if `added` (of another rank) has a different number of
/// channels.
void move_norm(const at::Tensor& running, double keep, const std::vector<double>& added);

}  // namespace npu_train::detail
