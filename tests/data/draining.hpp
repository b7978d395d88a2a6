/// Shared parts of the loader's tests: its options, and the content of an epoch.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "npu_train/base/state.hpp"
#include "npu_train/data/image_dataset.hpp"
#include "npu_train/data/image_transforms.hpp"
#include "npu_train/data/loader.hpp"

namespace npu_train::testing {

/// Content of an epoch: ids and a digest of every batch.
using Drained = std::vector<std::pair<std::vector<int64_t>, uint64_t>>;

inline Drained drain(Loader& loader) {
  Drained out;
  while (auto batch = loader.next()) {
    uint64_t all = 0;
    for (const auto& [name, value] : batch->fields()) all = all * 31 + digest(value);
    CHECK(batch->index == loader.cursor() - 1);
    out.emplace_back(batch->ids, all);
  }
  return out;
}

inline Drained epoch_of(Loader& loader, int64_t epoch, int64_t first = 0) {
  loader.begin_epoch(epoch, first);
  return drain(loader);
}

/// Returns `count` images of 10 x 12 pixels in seven classes.
inline std::shared_ptr<const Dataset> byte_images(int64_t count = 50) {
  DatasetInfo info;
  info.name = "test";
  info.num_classes = 7;
  info.shape = {3, 10, 12};
  std::vector<uint8_t> pixels(static_cast<size_t>(count) * 360);
  std::vector<int64_t> labels(static_cast<size_t>(count));
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 31 % 255);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int64_t>(i % 7);
  return std::make_shared<MemoryImages>(pixels, labels, info);
}

/// Returns random transforms for these images, to 8 x 8 pixels.
inline Pipeline random_chain() {
  return Pipeline(
      {std::make_shared<RandomCrop>(8, 2), std::make_shared<HorizontalFlip>(), std::make_shared<ColorJitter>(0.2, 0.2, 0.2, 0.1)},
      {{0.5}, {0.25}});
}

inline LoaderOptions options(int64_t workers, int64_t batch = 8) {
  LoaderOptions out;
  out.batch_size = batch;
  out.shuffle = true;
  out.num_workers = workers;
  out.seed = 42;
  return out;
}

}  // namespace npu_train::testing
