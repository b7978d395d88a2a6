// Samples in tar archives, in the layout of WebDataset (https://github.com/webdataset/webdataset): consecutive files with the same name up
// to the first dot are the parts of one sample, such as 0001.jpg and 0001.cls.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/data/image_dataset.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::detail {

// Which parts of a sample are its image and its class.
struct SampleParts {
  std::vector<std::string> image = {"jpg", "jpeg", "png", "webp", "bmp"};  // a sample has one of them
  std::string label = "cls";
  std::string label_key = "label";  // key of the label, if the part is a JSON object
};

struct SamplePart {
  std::string extension;  // lower case, everything after the first dot
  uint64_t offset = 0, size = 0;
};

// The place of a sample in its archive.
struct ShardSample {
  uint64_t begin = 0;  // offset of its first header
  std::string key;
  std::vector<SamplePart> parts;
};

// Returns the first sample at or after `position`, and moves `position` behind it. Files without an extension, hidden files and files in
// "__name__" are skipped, as in WebDataset (except that WebDataset treats a hidden file in a folder as a sample). Error(Data) if the
// archive cannot be read (see next_tar_member), or for a sample of more than 1000 parts. nullopt at the end.
std::optional<ShardSample> next_sample(const ReadableFile& shard, uint64_t& position);

// Returns "FILE, sample KEY" for messages.
std::string where_sample(const std::filesystem::path& shard, const ShardSample& sample);

// Reads the image, without decoding it, and the class: a whole number, or a name of `info.class_names`. Error(Data) if one of them is
// missing, occurs twice or is too large, if the class is not one of `info`, and if the archive cannot be read.
LabelledImage read_sample(const std::filesystem::path& shard, const ShardSample& sample, const SampleParts& parts, const DatasetInfo& info);

// All samples of some archives, with random access, for validation. The constructor reads all headers.
class ShardImages final : public ImageDataset {
 public:
  // Error(Data) as for next_sample, and if there is no sample.
  ShardImages(std::vector<std::filesystem::path> shards, SampleParts parts, DatasetInfo info);

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  LabelledImage image(int64_t index) const override;
  DatasetInfo info() const override { return info_; }
  std::string where(int64_t index) const override;

 private:
  struct Entry {
    size_t shard;
    ShardSample sample;
  };

  std::vector<std::filesystem::path> shards_;
  SampleParts parts_;
  DatasetInfo info_;
  std::vector<Entry> samples_;
};

}  // namespace npu_train::detail
