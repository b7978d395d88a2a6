/// Data sets for tools that need only what a batch looks like: shapes, classes, transforms. No file is opened and nothing is fetched.
#pragma once

#include "npu_train/data/datasets.hpp"

namespace npu_train {

/// `registry` with cifar10, cifar100 and image_folder replaced by data sets of random images: the same options, transforms, loader and
/// classes, of the size that the data set's images have (image_folder: data.image_size squared, and 224 where that is 0). image_folder
/// has as many classes as ROOT/train has folders, and `num_classes` of them where it is not there (0: 1000). Other names, and a data set
/// that was added under one of these names, stay as they are: only opening them tells what they hold.
DatasetRegistry shapes_only(DatasetRegistry registry, int64_t num_classes = 0);

}  // namespace npu_train
