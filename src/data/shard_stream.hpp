// The training images of tar archives, as a stream.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/shard_samples.hpp"
#include "npu_train/data/image_stream.hpp"

namespace npu_train::detail {

struct ShardOrder {
  bool shuffle = true;
  int64_t buffer = 1000;  // samples from which the next one is drawn
};

// Each part (rank) reads complete archives: every count-th one in the epoch's order of archives. The stream reads only headers;
// `PendingImage::read` reads the images. The order depends only on seed, epoch, part and files. The state has offsets, not images.
class ShardStream final : public ImageStream {
 public:
  // Error(Data) if the size of a file cannot be read.
  ShardStream(std::vector<std::filesystem::path> shards, SampleParts parts, DatasetInfo info, ShardOrder order);

  void begin_epoch(int64_t epoch) override;
  // Error(Data) for a broken archive; the call after it continues with the next archive.
  std::optional<PendingImage> next_image() override;
  std::string source() const override { return source_; }
  State state() const override;
  // Error(Checkpoint) if the state belongs to other files or other options, or no sample begins at one of its offsets.
  void load_state(const State& state) override;
  // Error(Usage) if there are fewer archives than parts. Logs a warning if the parts have different numbers of archives.
  void shard(int64_t index, int64_t count) override;
  bool shards_by_sample() const override { return false; }
  void set_seed(uint64_t seed) override { seed_ = seed; }
  DatasetInfo info() const override { return format_->info; }

 private:
  struct Entry {
    int64_t shard;
    ShardSample sample;
  };
  struct Format {
    SampleParts parts;
    DatasetInfo info;
  };
  std::optional<Entry> read_next();
  void leave_archive();

  std::vector<std::filesystem::path> shards_;
  std::shared_ptr<const Format> format_;  // shared with the images that are still to be read
  ShardOrder order_;
  std::string source_;
  uint64_t seed_ = 0;
  int64_t index_ = 0, count_ = 1;  // number of this part, and number of all parts

  // The position in an epoch:
  int64_t epoch_ = 0;
  std::vector<int64_t> own_;          // archives of this part, in the order of the epoch
  int64_t at_ = 0;                    // index in own_ of the open archive, or of the next one
  std::optional<ReadableFile> file_;  // the open archive
  uint64_t position_ = 0;             // in the open archive
  std::vector<Entry> buffer_;
  int64_t given_ = 0;  // samples of this epoch that next_image() has returned
};

}  // namespace npu_train::detail
