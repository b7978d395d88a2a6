/// Statistics of a data set: `npu_tool data stats`.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/engine/run_config.hpp"
#include "npu_train/tools/probe/data_check.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {

/// How often each value of a channel occurs. Counts are exact, so results do not depend on the order of images or on threads.
struct ChannelStatistics {
  std::array<int64_t, 256> counts{};

  void add(const ChannelStatistics& other);
  int64_t pixels() const;
  int64_t sum() const;             ///< sum of the values, which are 0 to 255
  int64_t sum_of_squares() const;  ///< sum of the squares of the values
  /// Mean and standard deviation of the values divided by 255, as the transform normalize expects them; NaN if there are no pixels. The
  /// deviation is that of the population (the divisor is the number of pixels).
  double mean() const;
  double std() const;
};

struct DataStatistics {
  std::string summary;              ///< DatasetPair::summary()
  int64_t train = 0, val = 0;       ///< samples
  std::vector<ClassCount> classes;  ///< empty if targets are not classes
  bool labelled = false;            ///< the class of each training sample is known without reading it: Dataset::label()
  /// Number of images by height and width before the transforms.
  std::map<std::pair<int64_t, int64_t>, int64_t> sizes;
  std::map<std::string, int64_t> modes;     ///< number of images by the way they are stored: "PNG, RGB"
  std::vector<ChannelStatistics> channels;  ///< channels of the training images: red, green, blue, or gray
  bool transformed = false;                 ///< `channels` describe the pixels after data.val_transforms; otherwise the pixels in the files
  std::map<int64_t, int64_t> lengths;       ///< number of texts by their number of tokens
  int64_t context = 0;                      ///< largest number of tokens that a text can have; 0: unknown
  std::vector<std::vector<RepeatedSample>> repeated;  ///< see DataCheck; filled only for check_data()
  std::vector<BadSample> bad;                         ///< unreadable samples; not counted in classes, sizes, modes, channels and lengths
};

/// Reads every sample of a configuration's data set, on up to 16 cores. Pixels are counted as `normalize` gets them: after the other
/// transforms of data.val_transforms. A stream is read for one epoch. The errors are those of check_data().
DataStatistics data_statistics(const RunConfig& config, const Parts& parts = builtin_parts(),
                               const std::function<void(int64_t done, int64_t all)>& progress = {});

/// Reads every image of a folder. The folder has the layout that image_folder expects of data.root or, if it contains no folders, images
/// without classes. Pixels are counted as they are stored. Error(Data) if the folder has no images.
DataStatistics folder_statistics(const std::string& folder, const Parts& parts = builtin_parts(),
                                 const std::function<void(int64_t done, int64_t all)>& progress = {});

Report report_of(const DataStatistics& statistics);

}  // namespace npu_train
