/// Batches from a data set, in order, prepared in advance by worker threads that live as long as the loader.
///
///   Loader loader(train_data, pipeline, {.batch_size = 128, .shuffle = true, .num_workers = cpu_count()});
///   for (int64_t epoch = 0; epoch < 10; ++epoch) {
///     loader.begin_epoch(epoch);
///     while (auto batch = loader.next()) step(*batch);
///   }
/// The batches depend only on (seed, epoch), not on the number of workers. With several ranks, the micro-batches of one process are
/// distributed in rounds (see DistributedSampler): rank r of N takes the micro-batches r, N + r, 2N + r, ... of an epoch, with the same
/// samples, transforms, mixing and Batch::index. Some ranks may have one batch fewer: see rounds_per_epoch().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/data/collate.hpp"
#include "npu_train/data/dataset.hpp"
#include "npu_train/data/sampler.hpp"
#include "npu_train/data/transform.hpp"

namespace npu_train {

/// Changes a complete batch: mixup, pinning, a copy to the device.
using BatchHook = std::function<Batch(Batch)>;
/// Returns a hook that calls `first`, then `second`; either may be empty.
BatchHook chain_hooks(BatchHook first, BatchHook second);

/// Handling of a last batch that is not full.
enum class LastBatch {
  Keep,  ///< keeps it, shorter than the others
  Drop,  ///< omits it
  Pad,   ///< fills it with repeated samples; "mask" [N] (float, 1 = real) marks them, and every batch has a mask
};

struct LoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  LastBatch last_batch = LastBatch::Keep;
  int64_t num_workers = 0;      ///< threads; 0: next() makes the batches on the calling thread
  int64_t prefetch_factor = 2;  ///< maximum number of finished or open batches per worker
  /// Batches have images as bytes. The last transforms are pending in the batch, with their random numbers; to_device() applies them on the
  /// device. Only for an ImageDataset; see data/device_augment.hpp.
  bool augment_on_device = false;
  bool channels_last = false;  ///< images of a batch are stored as [N, H, W, C] in memory (the shape stays [N, C, H, W])
  /// Omits a sample that throws Error(Data) from its batch instead of failing; all are counted, and the log names the first few. A batch
  /// without a good sample is omitted. An exception of a stream's next() stays an error.
  bool skip_bad_samples = false;
  uint64_t seed = 0;  ///< the same on every rank
  int64_t rank = 0, world_size = 1;
  std::vector<double> sample_weights{};  ///< draws the samples of an epoch with replacement, see SamplerOptions::weights
  std::vector<int64_t> subset{};         ///< the samples of an epoch; empty: all, see SamplerOptions::subset
  /// Makes a batch of samples; empty: stack(), after padding the inputs of a SequenceDataset. Not for an ImageDataset, whose images are
  /// decoded into the batch.
  Collate collate{};
  BatchHook finish{};    ///< called in a worker for each complete batch (mixup, pinned memory)
  BatchHook transfer{};  ///< called in next(), on the calling thread (copy to the device)
};

/// Parses "auto" or a number; auto is min(16, cpu_count()).
int64_t parse_num_workers(const std::string& text);
/// Returns the number of cores that this process may use: its affinity limited by the CPU quota of its control group, at least 1.
int64_t cpu_count();

/// Not thread-safe: call it from one thread at a time.
class Loader {
 public:
  /// Loads a data set with random access. `pipeline` applies to ImageDatasets and to "input" tensors of uint8 [C, H, W]; otherwise it
  /// must be empty. Error(Usage) if batch_size exceeds the number of samples, or the pipeline does not give the images one size.
  Loader(std::shared_ptr<const Dataset> dataset, Pipeline pipeline, LoaderOptions options);
  /// Loads a stream; shuffle must be off. With world_size > 1 each rank reads its part (IterableDataset::shard). A round of N ranks then
  /// has the samples of N successive micro-batches of one process, but distributed one by one, so that sums agree only up to rounding. The
  /// number of batches of a rank is unknown until the stream ends.
  Loader(std::shared_ptr<IterableDataset> stream, Pipeline pipeline, LoaderOptions options);
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  /// Starts an epoch after its first `first_batch` micro-batches (counted over all ranks, even if the number of ranks has changed) and
  /// drops unfinished work. Reads a stream up to this position unless load_state() has put it there.
  void begin_epoch(int64_t epoch, int64_t first_batch = 0);

  /// Returns the next batch, or nullopt at the end of the epoch. `ids` has the data set's indices of the real samples; `epoch` and `index`
  /// (of the micro-batch in the epoch, over all ranks) are set. An error in a worker is thrown here, in order, as an Error that names the
  /// sample; the next call continues with the following batch, and begin_epoch starts again.
  std::optional<Batch> next();

  /// Returns the number of batches of a complete epoch on this rank; nullopt for a stream.
  std::optional<int64_t> batches_per_epoch() const;
  /// Returns the number of samples of a complete epoch on this rank (without those of dropped batches); nullopt for a stream.
  std::optional<int64_t> samples_per_epoch() const;
  /// Returns the number of micro-batches of a complete epoch over all ranks; nullopt for a stream.
  std::optional<int64_t> micro_batches_per_epoch() const;
  /// Returns the largest number of batches of any rank, which is the same number on every rank; limits and schedules count these rounds.
  /// Some ranks have one batch fewer. nullopt for a stream.
  std::optional<int64_t> rounds_per_epoch() const;

  /// Returns the position after the round of the last batch returned by next(): seed, epoch, cursor, and either a digest of the order or
  /// the stream's own state (at that batch, not where the workers have read ahead to). Independent of the ranks, except for a stream.
  State state() const;
  /// Restores the seed and the position. `begin_epoch(state's epoch, state's cursor)` then continues with the next batch, on any number of
  /// ranks. Error(Checkpoint) if the state is inside an epoch and the data set, the order or the batch size differ.
  void load_state(const State& state);
  int64_t epoch() const;
  /// Returns the number of micro-batches of this epoch that all ranks have consumed after this round. Multiplied by the batch size, up to
  /// the size of the data set, this is the number of consumed samples.
  int64_t cursor() const;

  /// Returns the number of samples omitted from this epoch so far, see LoaderOptions::skip_bad_samples.
  int64_t bad_samples() const;

  const DatasetInfo& info() const;
  const LoaderOptions& options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
