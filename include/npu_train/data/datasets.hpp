/// Data sets by name, and the loaders over them.
#pragma once

#include <cstdint>
#include <memory>

#include "npu_train/core/registry.hpp"
#include "npu_train/data/data_options.hpp"
#include "npu_train/data/dataset.hpp"
#include "npu_train/data/loader.hpp"
#include "npu_train/data/transform.hpp"

namespace npu_train {

/// What a data set's name stands for: what to train and to validate on, how its pictures are changed, and the loader's options.
struct DatasetPair {
  std::shared_ptr<const Dataset> train;  ///< or a stream:
  std::shared_ptr<IterableDataset> train_stream;
  std::shared_ptr<const Dataset> val;  ///< null: there is nothing to validate on
  Pipeline train_pipeline, val_pipeline;
  DataOptions options;
  std::string left_out{};  ///< what opening passed over: "11 files skipped (8 .txt, 3 .webp)"; "" for nothing

  /// Of the training data.
  DatasetInfo info() const;
  /// One line: "120 + 30 images, 3 classes, 11 files skipped (8 .txt, 3 .webp)".
  std::string summary() const;
};

/// Each entry's options derive from DataOptions; opening may read files (Error(Data) says what is missing and how to get it).
using DatasetRegistry = Registry<DatasetPair>;

/// cifar10, cifar100, image_folder, generated.
void add_builtin_datasets(DatasetRegistry& registry);
DatasetRegistry builtin_datasets();

/// Both pipelines of a pair from its options; what the options leave open comes from `info`. Error(Usage) as Pipeline::from_config, and
/// with augment_on: device as split_for_device.
void set_pipelines(DatasetPair& pair, const DatasetInfo& info, const TransformRegistry& transforms = builtin_transforms());

/// A loader over the training data: the pair's options, shuffled, with mixup and cutmix when they are on. `runtime` gives what is not in
/// the options (seed, ranks, channels_last, hooks; drop_last wins over last_batch).
Loader train_loader(const DatasetPair& pair, LoaderOptions runtime);
/// A loader over the validation data: in order, every sample once. A batch larger than the data is made as small as the data.
/// Error(Usage) when there is none.
Loader val_loader(const DatasetPair& pair, LoaderOptions runtime);

}  // namespace npu_train
