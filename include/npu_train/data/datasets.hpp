/// Data sets by name, and their loaders.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/core/registry.hpp"
#include "npu_train/data/data_options.hpp"
#include "npu_train/data/dataset.hpp"
#include "npu_train/data/loader.hpp"
#include "npu_train/data/transform.hpp"

namespace npu_train {

/// A configured data set: training and validation data, the transforms of the images, and the loader's options.
struct DatasetPair {
  std::shared_ptr<const Dataset> train;  ///< null if the data are a stream
  std::shared_ptr<IterableDataset> train_stream;
  std::shared_ptr<const Dataset> val;  ///< null: no validation data
  Pipeline train_pipeline, val_pipeline;
  DataOptions options;
  Collate collate{};  ///< of both loaders; empty: see LoaderOptions::collate
  /// Choice of training samples in code: weights or a subset, see SamplerOptions; empty: none. data.sampler reads a choice from a file
  /// instead.
  std::vector<double> sample_weights{};
  std::vector<int64_t> subset{};
  /// Opens the test data; empty if there are none.
  std::function<std::shared_ptr<const Dataset>()> open_test{};
  std::string left_out{};  ///< skipped entries: "11 files skipped (8 .txt, 3 .gif)"; "" if none

  /// Returns the description of the training data.
  DatasetInfo info() const;
  /// Returns one line: "120 + 30 images, 3 classes, 11 files skipped (8 .txt, 3 .gif)".
  std::string summary() const;
};

/// The options of each entry derive from DataOptions. Opening may read files (Error(Data) names missing files and how to get them). A
/// factory receives the known transforms for set_pipelines(); a data set without transforms omits that argument.
using DatasetRegistry = Registry<DatasetPair, const TransformRegistry&>;

/// Adds cifar10, cifar100, image_folder, image_list, webdataset, generated, tokens, documents, image_text, image_questions, generated_text
/// and generated_questions.
void add_builtin_datasets(DatasetRegistry& registry);
DatasetRegistry builtin_datasets();

/// Builds both pipelines from the pair's options. Values that these leave open, such as mean and std, are taken from `info`. Error(Usage)
/// as in Pipeline::from_config and, for augment_on: device, as in split_for_device.
void set_pipelines(DatasetPair& pair, const DatasetInfo& info, const TransformRegistry& transforms = builtin_transforms());

/// Sets the pair's collate to the one that its options name; does nothing if they name none. Error(Usage) as in Registry::make.
void set_collate(DatasetPair& pair, const CollateRegistry& collates);

/// Returns a loader over the training data with the pair's options, mixup and cutmix included. `runtime` has the other settings (seed,
/// ranks, channels_last, hooks); drop_last overrides its last_batch.
Loader train_loader(const DatasetPair& pair, LoaderOptions runtime);
/// Returns a loader over the validation data in order; each sample occurs once, on one rank. With fewer batches than ranks, some ranks have
/// none. A batch size above the size of the data is reduced to it. Error(Usage) if there are no validation data.
Loader val_loader(const DatasetPair& pair, LoaderOptions runtime);

}  // namespace npu_train
