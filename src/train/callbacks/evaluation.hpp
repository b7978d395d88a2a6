// Validation and prediction: the model in evaluation mode, with the averaged weights if there are any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "npu_train/data/loader.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/optim/average.hpp"
#include "npu_train/precision/precision.hpp"
#include "npu_train/train/failed_window.hpp"
#include "npu_train/train/metric.hpp"
#include "npu_train/train/report.hpp"
#include "npu_train/train/task.hpp"
#include "train/callbacks/overfit_batches.hpp"

namespace npu_train::detail {

class Evaluation {
 public:
  struct Context {
    Task& task;
    Precision& precision;
    WeightAverage* average;  // may be nullptr
    Strategy& strategy;
    Device device;
    const std::atomic<bool>& stop;
    std::optional<FailedWindow>& failed;  // receives the batch for which memory ran out
  };
  explicit Evaluation(Context context) : run_(std::move(context)) {}

  // The run's data for an evaluation, and its limits.
  struct Options {
    int64_t limit = -1;  // maximum number of batches on each rank; -1: all
    Pass pass = Pass::Validation;
    int64_t epoch = 0;                  // epoch of the loader; the order of the data depends on it
    int64_t attempt = 0;                // windows attempted so far: key of portable random numbers
    bool stoppable = false;             // true: request_stop() ends the evaluation
    OverfitBatches* overfit = nullptr;  // batches to use instead of the loader's; filled from `train_loader`
    Loader* train_loader = nullptr;
    std::function<void(int64_t done, std::optional<int64_t> total)> on_batch{};
  };
  // Returns averages over the batches of all ranks, "loss" first. Returns nullopt if a stop was requested on a rank before the end. Each
  // rank evaluates its part of the data, which may be empty.
  std::optional<Scalars> run(Loader& loader, const Options& options);

  // Measures the running statistics of the averaged weights: the means, over the batches of all ranks, of the values that normalisation
  // layers measure in training mode, as torch.optim.swa_utils.update_bn computes them. Other buffers of the averages are unchanged.
  // `loader` has training data, and continues at its position afterwards. A layer with sync_batchnorm measures the micro-batches of each
  // rank separately. Returns false, and leaves the statistics unchanged, if a stop was requested on a rank before the end.
  bool take_statistics(Loader& loader, const Options& options);

  // Calls `forward` with the batch on the device; returns its result on the host, in fp32.
  Outputs predict(const Batch& batch, const std::function<Outputs(const Batch&)>& forward);

 private:
  struct Mode;
  struct Sums;
  // Calls `use` for each batch; returns false if a stop request ended the iteration on this rank. `draws`: part of the key of portable
  // random numbers.
  bool each_batch(Loader& loader, const Options& options, std::string_view draws,
                  const std::function<void(const Batch& batch, Phase& phase, uint64_t key)>& use);
  void add(const Batch& batch, Phase& phase, Sums& sums);
  void share_buffers();
  std::optional<Scalars> averages(Sums& own, bool stopped);
  void replace_epoch_metrics(const EpochMetrics& task, const Sums& own, Scalars& averages);
  void note_out_of_memory(FailedWindow failed);

  Context run_;
};

}  // namespace npu_train::detail
