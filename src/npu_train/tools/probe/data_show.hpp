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
  int64_t versions = 0;  ///< number of epochs in which each image is shown; 0: 4 for training, 1 for validation and for a stream
  bool validation = false;
  int64_t pixels = 20'000'000;  ///< upper limit for all shown images together; larger images are scaled down
};

/// An image in one epoch.
struct ShownVersion {
  int64_t epoch = 0;
  std::vector<std::pair<std::string, double>> labels{};  ///< names and values of mixed, numeric or multiple labels; shares largest first
  std::string png{};                                     ///< bytes of the PNG file; "" if there is a problem
  int64_t height = 0, width = 0;                         ///< size of the image
  int64_t png_height = 0, png_width = 0;                 ///< size of the PNG, which is smaller if the image is scaled down
  std::string problem{};                                 ///< the reason why there is no PNG; otherwise ""
  bool unreadable = false;                               ///< the problem is that a sample of the micro-batch cannot be read
};

struct ShownSample {
  int64_t index = 0;
  std::string file, label;  ///< "" if unknown
  std::vector<ShownVersion> versions{};
};

struct DataShow {
  std::string name{};        ///< name of the data set
  std::string summary{};     ///< DatasetPair::summary()
  std::string split{};       ///< train | val
  std::string transforms{};  ///< names of the transforms
  std::string mixing{};      ///< "mixup 0.2", or "none"
  std::string where{};       ///< where the transforms run, for example "host"
  int64_t seed = 0;
  bool numbers = false;  ///< the labels are numbers, not shares of classes
  std::vector<ShownSample> samples{};
};

/// Draws images by the seed and shows them as the loader of the run delivers them in its first epochs: after all transforms, including
/// those on the device, and after mixup and cutmix with other samples of the same micro-batch. Only the normalisation is undone. For a
/// stream of images, shows the first images of the first epoch of one process, in one version, since the next epoch begins with other
/// images. Tensors of uint8 without transforms are shown as they are. Error(Usage) for data that are not images of one or three channels,
/// for other tensors without transforms, for several versions of a stream, and for more than 2,000 images in all.
DataShow show_data(const RunConfig& config, const DataShowOptions& options, const Parts& parts = builtin_parts(),
                   const std::function<void(int64_t done, int64_t all)>& progress = {});

Report report_of(const DataShow& show);

}  // namespace npu_train
