/// Data sets for tools that need only shapes, classes and transforms. No file is opened or downloaded.
#pragma once

#include "npu_train/data/datasets.hpp"

namespace npu_train {

/// Returns `registry` with cifar10, cifar100, image_folder and webdataset replaced by random images with the same options, transforms,
/// loader, number of classes and image size (of the last two: data.image_size squared; 224 if that is 0). image_folder has as many classes
/// as ROOT/train has folders; `num_classes` if that does not exist (0: 1000). Other data sets, and replacements that a program added under
/// these names, are unchanged, because their content is unknown until they are opened.
DatasetRegistry shapes_only(DatasetRegistry registry, int64_t num_classes = 0);

}  // namespace npu_train
