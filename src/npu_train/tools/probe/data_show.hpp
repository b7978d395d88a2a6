/// Images as a model sees them in a training: `npu_tool data show`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/engine/run_config.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {

struct DataShowOptions {
  int64_t images = 12;
  int64_t versions = 0;  ///< epochs in which each image is shown; 0: 4 in training, 1 in validation and of a stream
  bool validation = false;
  int64_t pixels = 20'000'000;  ///< of all pictures together, at most: larger ones are scaled down
};

/// An image in one epoch.
struct ShownVersion {
  int64_t epoch = 0;
  std::vector<std::pair<std::string, double>> labels{};  ///< mixed, several or numeric targets: names and values, largest first
  std::string png{};                                     ///< bytes of a file with the picture; "" with a problem
  int64_t height = 0, width = 0;                         ///< of the image
  int64_t png_height = 0, png_width = 0;                 ///< of the picture, which is smaller than the image if it is scaled down
  std::string problem{};                                 ///< why there is no picture
  bool unreadable = false;                               ///< the problem: a sample of the micro-batch cannot be read
};

struct ShownSample {
  int64_t index = 0;
  std::string file, label;  ///< "" if unknown
  std::vector<ShownVersion> versions{};
};

struct DataShow {
  std::string name{};        ///< of the data set
  std::string summary{};     ///< DatasetPair::summary()
  std::string split{};       ///< train | val
  std::string transforms{};  ///< names of the steps
  std::string mixing{};      ///< "mixup 0.2", or "none"
  std::string where{};       ///< where the steps run: "host"
  int64_t seed = 0;
  bool numbers = false;  ///< the labels are numbers, not shares of classes
  std::vector<ShownSample> samples{};
};

/// Draws images by the seed and shows them as the loader of the run delivers them in its first epochs: after the transforms, those on the
/// device included, and mixup and cutmix with the partners of their micro-batches; only the normalisation is undone. Of a stream of images,
/// shows the first ones of the first epoch of one process: the next epoch begins with others. Error(Usage) for data that are not images of
/// one or three channels, for tensors without transforms unless they are uint8, which are shown as they are, for several versions of a
/// stream, and for more than 2,000 images in all.
DataShow show_data(const RunConfig& config, const DataShowOptions& options, const Parts& parts = builtin_parts(),
                   const std::function<void(int64_t done, int64_t all)>& progress = {});

Report report_of(const DataShow& show);

}  // namespace npu_train
