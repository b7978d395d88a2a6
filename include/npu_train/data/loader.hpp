/// Batches from a data set, in order, prepared in advance by worker threads that live as long as the loader.
///
///   Loader loader(train_data, pipeline, {.batch_size = 128, .shuffle = true, .num_workers = cpu_count()});
///   for (int64_t epoch = 0; epoch < 10; ++epoch) {
///     loader.begin_epoch(epoch);
///     while (auto batch = loader.next()) step(*batch);
///   }
/// The batches depend only on (seed, epoch), not on the number of workers. With several ranks they are the micro-batches of one process,
/// dealt out round by round (see DistributedSampler): rank r of N takes the micro-batches r, N + r, 2N + r, ... of an epoch, with the same
/// samples, transforms, mixing and Batch::index. Some ranks may have one batch fewer: see rounds_per_epoch().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/data/dataset.hpp"
#include "npu_train/data/sampler.hpp"
#include "npu_train/data/transform.hpp"

namespace npu_train {

/// Changes a complete batch: mixup, pinning, a copy to the device.
using BatchHook = std::function<Batch(Batch)>;
/// `second` after `first`; either may be empty.
BatchHook chain_hooks(BatchHook first, BatchHook second);

/// Handling of a last batch that is not full.
enum class LastBatch {
  Keep,  ///< it is shorter
  Drop,  ///< it is omitted
  Pad,   ///< it is filled with repeated samples, which "mask" [N] (float, 1 = real) marks; every batch then has a mask
};

struct LoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  LastBatch last_batch = LastBatch::Keep;
  int64_t num_workers = 0;      ///< threads; 0: batches are made in next(), by the caller
  int64_t prefetch_factor = 2;  ///< finished or open batches per worker, at most
  /// Images arrive as bytes with the random numbers of their last transforms, which are pending in the batch: to_device() applies them on
  /// the device. For a PictureDataset; see data/device_augment.hpp.
  bool augment_on_device = false;
  bool channels_last = false;  ///< images of a batch are stored as [N, H, W, C] in memory (the shape stays [N, C, H, W])
  /// A sample that throws Error(Data) is omitted from its batch instead of failing it; the log names the first few of a loader, and all are
  /// counted. A batch without a good sample is omitted. An exception of a stream's next() stays an error.
  bool skip_bad_samples = false;
  uint64_t seed = 0;  ///< the same on every rank
  int64_t rank = 0, world_size = 1;
  BatchHook finish{};    ///< called in a worker on each complete batch (mixup, pinned memory)
  BatchHook transfer{};  ///< called in next(), by the caller (copy to the device)
};

/// "auto" or a number: auto is min(16, cores that this process may use).
int64_t parse_num_workers(const std::string& text);
/// Cores that this process may use: its affinity and the CPU quota of its control group, at least 1.
int64_t cpu_count();

/// One thread at a time calls a Loader's functions.
class Loader {
 public:
  /// Over samples by number. `pipeline` applies to PictureDatasets and to "input" tensors of uint8 [C, H, W]; with other samples it must be
  /// empty. Error(Usage) if batch_size exceeds the number of samples, or the pipeline does not give the images one size.
  Loader(std::shared_ptr<const Dataset> dataset, Pipeline pipeline, LoaderOptions options);
  /// Over a stream. shuffle must be off. With world_size > 1 each rank reads its part (IterableDataset::shard): a round of N ranks has the
  /// samples of N successive micro-batches of one process, but dealt out one by one, so its sums agree to rounding only; and only the end
  /// of the stream shows how many batches a rank has.
  Loader(std::shared_ptr<IterableDataset> stream, Pipeline pipeline, LoaderOptions options);
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  /// Starts an epoch after its first `first_batch` micro-batches (of all ranks, whatever their number was); unfinished work is dropped. A
  /// stream that is not at this position (see load_state) is read up to it.
  void begin_epoch(int64_t epoch, int64_t first_batch = 0);

  /// The next batch, or nothing at the end of the epoch. `ids` are the data set's indices of the real samples, `epoch` and `index` (of the
  /// micro-batch in the epoch, over all ranks) are set. An error in a worker is thrown here, in order, as an Error that names the sample;
  /// the next call continues with the following batch, and begin_epoch starts again.
  std::optional<Batch> next();

  /// Batches of a complete epoch on this rank; nothing for a stream.
  std::optional<int64_t> batches_per_epoch() const;
  /// Samples of a complete epoch on this rank (without those of dropped batches); nothing for a stream.
  std::optional<int64_t> samples_per_epoch() const;
  /// Micro-batches of a complete epoch, over all ranks; nothing for a stream.
  std::optional<int64_t> micro_batches_per_epoch() const;
  /// The batches of the rank that has the most of them: the same number on every rank, some of which have one batch fewer. What limits and
  /// schedules count. Nothing for a stream.
  std::optional<int64_t> rounds_per_epoch() const;

  /// The position after the round of the last batch returned by next(): seed, epoch, cursor, and either a digest of the order or the
  /// stream's own state (at that batch, not at the position to which the workers have read ahead). Free of the ranks, except for a stream.
  State state() const;
  /// Takes the seed and the position. `begin_epoch(state's epoch, state's cursor)` continues with the batch that would have been next, on
  /// any number of ranks. Error(Checkpoint) if the data set, the order or the batch size differ from those of the state and it is inside an
  /// epoch.
  void load_state(const State& state);
  int64_t epoch() const;
  /// Micro-batches of this epoch that all ranks have consumed after this round; the number of samples is that times the batch size, up to
  /// the size of the data set.
  int64_t cursor() const;

  /// Samples of this epoch that have been omitted so far, see LoaderOptions::skip_bad_samples.
  int64_t bad_samples() const;

  const DatasetInfo& info() const;
  const LoaderOptions& options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
