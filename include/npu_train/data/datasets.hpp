/// Data sets by name, and their loaders.
#pragma once

#include <cstdint>
#include <memory>

#include "npu_train/core/registry.hpp"
#include "npu_train/data/data_options.hpp"
#include "npu_train/data/dataset.hpp"
#include "npu_train/data/loader.hpp"
#include "npu_train/data/transform.hpp"

namespace npu_train {

/// The meaning of a data set's name: the training and validation data, the transforms of the images, and the loader's options.
struct DatasetPair {
  std::shared_ptr<const Dataset> train;  ///< or a stream:
  std::shared_ptr<IterableDataset> train_stream;
  std::shared_ptr<const Dataset> val;  ///< null: no validation data
  Pipeline train_pipeline, val_pipeline;
  DataOptions options;
  std::string left_out{};  ///< skipped entries: "11 files skipped (8 .txt, 3 .webp)"; "" if none

  /// Of the training data.
  DatasetInfo info() const;
  /// One line: "120 + 30 images, 3 classes, 11 files skipped (8 .txt, 3 .webp)".
  std::string summary() const;
};

/// Each entry's options derive from DataOptions; opening may read files (Error(Data) names missing files and how to get them). A factory
/// gets the transforms that the configuration may name, for set_pipelines(); one without transforms omits that argument.
using DatasetRegistry = Registry<DatasetPair, const TransformRegistry&>;

/// cifar10, cifar100, image_folder, generated, tokens, documents, image_text, image_questions, generated_text,
/// generated_questions.
void add_builtin_datasets(DatasetRegistry& registry);
DatasetRegistry builtin_datasets();

/// Both pipelines of a pair from its options; open options are taken from `info`. Error(Usage) as Pipeline::from_config, and
/// with augment_on: device as split_for_device.
void set_pipelines(DatasetPair& pair, const DatasetInfo& info, const TransformRegistry& transforms = builtin_transforms());

/// A loader over the training data: the pair's options, shuffled, with mixup and cutmix if enabled. `runtime` has the settings that are not
/// in the options (seed, ranks, channels_last, hooks; drop_last wins over last_batch).
Loader train_loader(const DatasetPair& pair, LoaderOptions runtime);
/// A loader over the validation data: in order, every sample once, on one rank; with fewer batches than ranks, some ranks have none. A
/// batch larger than the data is reduced to the size of the data. Error(Usage) if there are no validation data.
Loader val_loader(const DatasetPair& pair, LoaderOptions runtime);

}  // namespace npu_train
