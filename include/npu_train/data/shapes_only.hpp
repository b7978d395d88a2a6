/// Data sets for tools that need only the form of a batch: shapes, classes, transforms. No file is opened or downloaded.
#pragma once

#include "npu_train/data/datasets.hpp"

namespace npu_train {

/// `registry` with cifar10, cifar100 and image_folder replaced by data sets of random images: the same options, transforms, loader and
/// classes, with the size of the data set's images (image_folder: data.image_size squared, and 224 if that is 0). image_folder
/// has as many classes as ROOT/train has folders, and `num_classes` of them if it does not exist (0: 1000). Other names, and a data set
/// that was added under one of these names, are unchanged: their content is known only when they are opened.
DatasetRegistry shapes_only(DatasetRegistry registry, int64_t num_classes = 0);

}  // namespace npu_train
