/// Data sets for tools that need only shapes, classes and transforms. No file is opened or downloaded.
#pragma once

#include "npu_train/data/datasets.hpp"

namespace npu_train {

/// Returns `registry` with cifar10, cifar100, image_folder and webdataset replaced by random images with the same options, transforms,
/// loader, number of classes and image size (for image_folder and webdataset: data.image_size squared, or 224 squared if that is 0).
/// image_folder has one class for each folder in ROOT/train; without that folder, it has `num_classes` classes (0: 1000). Other data sets,
/// and replacements that a program added under these names, are unchanged, because their content is unknown until they are opened.
DatasetRegistry shapes_only(DatasetRegistry registry, int64_t num_classes = 0);

}  // namespace npu_train
