/// The order of samples and its division into micro-batches of ranks: pure functions of (seed, epoch), so that a position is two numbers.
#pragma once

#include <cstdint>
#include <vector>

namespace npu_train {

/// Returns 0, 1, ..., n - 1 in an order drawn from (seed, epoch): Fisher-Yates over Philox.
std::vector<int64_t> permutation(uint64_t seed, int64_t epoch, int64_t n);

/// Returns weights.size() draws with replacement from (seed, epoch), each with a probability proportional to its weight, as
/// torch.utils.data.WeightedRandomSampler draws them. Error(Usage) for a weight that is negative or not finite, or if all are 0.
std::vector<int64_t> weighted_draws(uint64_t seed, int64_t epoch, const std::vector<double>& weights);

/// Returns 0, 1, ..., n - 1.
std::vector<int64_t> sequence(int64_t n);

struct SamplerOptions {
  int64_t size = 0;        ///< samples of the data set
  int64_t batch_size = 1;  ///< samples of a micro-batch, on each rank
  bool shuffle = false;    ///< a new order in each epoch
  bool drop_last = false;  ///< omits the last micro-batch of the epoch if it is not full
  uint64_t seed = 0;       ///< the same on every rank
  int64_t rank = 0, world_size = 1;
  /// Not empty: an epoch has the samples of weighted_draws(), and `shuffle` has no effect. One weight for each sample.
  std::vector<double> weights{};
  /// Not empty: an epoch has only the samples with these indices, as with torch.utils.data.SubsetRandomSampler; without `shuffle` in this
  /// order. Not together with weights.
  std::vector<int64_t> subset{};
};

/// The samples of each micro-batch of one rank. The order of an epoch is cut into micro-batches 0, 1, 2, ...; in round k, rank r of N takes
/// micro-batch k * N + r, with the samples that a single process would have in it.
///
///   DistributedSampler sampler({.size = data.size(), .batch_size = 32, .shuffle = true, .seed = 42, .rank = rank, .world_size = ranks});
///   for (int64_t epoch = 0; epoch < 10; ++epoch) {
///     sampler.set_epoch(epoch);
///     for (int64_t round = 0; round < sampler.rounds(); ++round) step(sampler.indices(round));
///   }
/// Over all ranks, each sample of the epoch occurs exactly once (with weights: as often as it was drawn). In the last round the last ranks
/// may have no samples, but still take part in the update. torch.utils.data.DistributedSampler differs: it deals single samples to the
/// ranks (every N-th), and repeats or drops some to give all ranks the same number. Its batches therefore depend on N and differ from those
/// of one process.
class DistributedSampler {
 public:
  /// Error(Usage) unless 0 <= rank < world_size, batch_size is at least 1, size at least 0, weights have this size, and the indices of a
  /// subset are below it and differ.
  explicit DistributedSampler(const SamplerOptions& options);
  const SamplerOptions& options() const { return options_; }

  /// Starts an epoch at micro-batch `first_batch`, the number that all ranks together have consumed, even if N was different. In round k,
  /// rank r takes micro-batch first_batch + k * N + r. Error(Usage) unless epoch >= 0 and 0 <= first_batch <= batches().
  void set_epoch(int64_t epoch, int64_t first_batch = 0);

  /// Returns the number of rounds from set_epoch() on, which is the same on every rank.
  int64_t rounds() const { return (batches() - first_batch_ + options_.world_size - 1) / options_.world_size; }
  /// Returns the number of rounds in which this rank has a micro-batch: all, or all but the last.
  int64_t rounds_on_rank() const { return batches_from(first_batch_); }
  /// Returns the index within the epoch of this rank's micro-batch in a round.
  int64_t index(int64_t round) const { return first_batch_ + round * options_.world_size + options_.rank; }
  /// Returns the samples of this rank in a round, after set_epoch(); empty if it has none.
  std::vector<int64_t> indices(int64_t round) const;

  /// Returns the number of samples of an epoch over all ranks, including those of an omitted last micro-batch.
  int64_t samples() const { return options_.subset.empty() ? options_.size : static_cast<int64_t>(options_.subset.size()); }
  /// Returns the number of micro-batches of a complete epoch over all ranks.
  int64_t batches() const;
  /// Return the numbers of micro-batches and samples of a complete epoch on this rank.
  int64_t batches_on_rank() const { return batches_from(0); }
  int64_t samples_on_rank() const;

  /// Returns all samples in the order of an epoch, including an omitted last micro-batch.
  std::vector<int64_t> order(int64_t epoch) const;

 private:
  int64_t batches_from(int64_t first_batch) const;  // of this rank

  SamplerOptions options_;
  int64_t first_batch_ = 0;
  bool begun_ = false;
  std::vector<int64_t> own_;  // samples of this rank from first_batch_ on
};

}  // namespace npu_train
