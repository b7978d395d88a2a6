// Validation and prediction: the model in evaluation mode, with the EMA's weights if there are any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "npu_train/data/loader.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/optim/ema.hpp"
#include "npu_train/precision/precision.hpp"
#include "npu_train/train/epoch_metrics.hpp"
#include "npu_train/train/failed_window.hpp"
#include "npu_train/train/report.hpp"
#include "npu_train/train/task.hpp"
#include "train/callbacks/overfit_batches.hpp"

namespace npu_train::detail {

class Evaluation {
 public:
  struct Context {
    Task& task;
    Precision& precision;
    Ema* ema;  // may be nullptr
    Strategy& strategy;
    Device device;
    const std::atomic<bool>& stop;
    std::optional<FailedWindow>& failed;  // gets the batch that ran out of memory
  };
  explicit Evaluation(Context context) : run_(std::move(context)) {}

  // What to run over, and how far.
  struct Options {
    int64_t limit = -1;  // batches of each rank; -1: all
    Pass pass = Pass::Validation;
    int64_t attempt = 0;                // windows attempted so far: portable random numbers are keyed by it
    bool stoppable = false;             // request_stop() ends it
    OverfitBatches* overfit = nullptr;  // instead of the loader's batches; filled from `train_loader`
    Loader* train_loader = nullptr;
    std::function<void(int64_t done, std::optional<int64_t> total)> on_batch{};
  };
  // Averages over the batches of all ranks, "loss" first; nullopt: a stop was requested on one of them before its end. Each rank runs over
  // its part of the data, which may be empty.
  std::optional<Scalars> run(Loader& loader, const Options& options);

  // What `forward` returns for the batch on the device, on the host in fp32.
  Outputs predict(const Batch& batch, const std::function<Outputs(const Batch&)>& forward);

 private:
  struct Mode;
  struct Sums;
  void add(const Batch& batch, Phase& phase, Sums& sums);
  void share_buffers();
  std::optional<Scalars> averages(Sums& own, bool stopped);
  void replace_epoch_metrics(const EpochMetrics& task, const Sums& own, Scalars& averages);
  void note_out_of_memory(FailedWindow failed);

  Context run_;
};

}  // namespace npu_train::detail
