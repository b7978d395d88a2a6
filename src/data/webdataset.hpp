// The data set `webdataset` of a configuration: images in tar archives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/shard_samples.hpp"
#include "npu_train/data/datasets.hpp"

namespace npu_train::detail {

struct WebdatasetOptions : DataOptions, SampleParts {
  std::string root;
  std::vector<std::string> train, val, test;
  int64_t num_classes = 0;
  std::vector<std::string> class_names;
  int64_t shuffle_buffer = 1000;
  WebdatasetOptions();
  static const ConfigTable<WebdatasetOptions>& config_table();
};

// Returns the facts that are known without the archives. Error(Usage) if neither the number of classes nor their names are given, or if the
// number differs from the number of names.
DatasetInfo webdataset_info(const WebdatasetOptions& options);

// Opens the training archives as a stream, and reads the headers of the validation archives. Error(Usage) and Error(Data) as in
// shard_names.hpp and shard_samples.hpp.
DatasetPair open_webdataset(const WebdatasetOptions& options, const TransformRegistry& transforms);

}  // namespace npu_train::detail
