/// Data sets. A data set of your own needs two functions:
///   class Squares : public npu_train::Dataset {
///    public:
///     int64_t size() const override { return 1000; }
///     npu_train::Sample get(int64_t index) const override { return {{{"input", x(index)}, {"target", y(index)}}, index}; }
///   };
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/state.hpp"

namespace npu_train {

/// One sample: named tensors without a batch dimension ("input" [C, H, W], "target" a scalar of int64) and its index in the data set.
struct Sample {
  std::vector<std::pair<std::string, at::Tensor>> fields;
  int64_t index = -1;
};

/// The description of a data set; every field is optional.
struct DatasetInfo {
  std::string name;
  int64_t num_classes = 0;               ///< 0: not a classification
  std::vector<std::string> class_names;  ///< by label; may be empty
  std::vector<int64_t> shape;            ///< [C, H, W] of a sample as stored; -1 if it varies; empty if unknown
  std::vector<double> mean, std;         ///< per channel, of values in [0, 1]
};

/// A part of the data. The published test images of CIFAR are both its validation and its test data.
enum class Split { Train, Val, Test };

/// A data set with random access.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// Sample `index`, 0 <= index < size(). Called from several threads at once. Every sample has the same names, shapes and dtypes.
  virtual Sample get(int64_t index) const = 0;

  virtual DatasetInfo info() const { return {}; }
  /// Returns the source of a sample for messages: a file and a record. May be empty.
  virtual std::string where(int64_t /*index*/) const { return {}; }
  /// Returns the class of a sample without reading its content; -1 if that is not known. Called from several threads at once.
  virtual int64_t label(int64_t /*index*/) const { return -1; }
};

/// Samples in sequence, for data without indices or without a known end. The loader calls it from one thread at a time, always in
/// the same order, so that the stream does not depend on the number of workers.
class IterableDataset {
 public:
  virtual ~IterableDataset() = default;
  /// Returns to the start of the stream for this epoch.
  virtual void begin_epoch(int64_t epoch) = 0;
  /// Returns the next sample, or nullopt at the end. The loader numbers samples over all ranks, from 0, if `Sample::index` is negative.
  virtual std::optional<Sample> next() = 0;
  /// Returns the position of the stream; load_state() continues from there.
  virtual State state() const = 0;
  virtual void load_state(const State& state) = 0;
  /// Restricts the stream to every `count`-th sample, from the `index`-th: the part of one rank. Called before begin_epoch.
  /// (A Dataset is divided by micro-batches instead, see DistributedSampler. To divide a stream that way, each rank would have to read all
  /// of it.)
  virtual void shard(int64_t index, int64_t count) = 0;
  /// Whether shard() selects single samples. A stream of files may deal out the files instead: the parts are then of different lengths, and
  /// a run continues inside an epoch only with the same number of ranks.
  virtual bool shards_by_sample() const { return true; }
  /// Sets the seed of an order that the stream draws for each epoch. Called before begin_epoch.
  virtual void set_seed(uint64_t /*seed*/) {}

  virtual DatasetInfo info() const { return {}; }
};

/// Samples from tensors in memory: sample i is inputs[i], targets[i]. The tensors are shared, not copied.
class TensorDataset final : public Dataset {
 public:
  /// Error(Usage) if the first dimensions differ or a tensor has none. If `num_classes` is not given, it is derived from int64 targets.
  TensorDataset(at::Tensor inputs, at::Tensor targets, int64_t num_classes = 0);

  int64_t size() const override;
  Sample get(int64_t index) const override;
  DatasetInfo info() const override { return info_; }
  /// Returns the target if targets are int64 [N], otherwise -1.
  int64_t label(int64_t index) const override;
  const at::Tensor& inputs() const { return inputs_; }
  const at::Tensor& targets() const { return targets_; }

 private:
  at::Tensor inputs_, targets_;
  DatasetInfo info_;
};

}  // namespace npu_train
