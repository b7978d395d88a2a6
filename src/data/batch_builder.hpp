/// One batch under construction: opened with its samples' numbers, filled in chunks by any thread, then closed.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/data/dataset.hpp"
#include "npu_train/data/device_augment.hpp"
#include "npu_train/data/documents.hpp"
#include "npu_train/data/image_text.hpp"
#include "npu_train/data/loader.hpp"
#include "npu_train/data/picture_dataset.hpp"

namespace npu_train::detail {

struct Job {
  int64_t epoch = 0;
  int64_t index = 0;            // of the batch
  std::vector<int64_t> ids;     // of the real samples
  std::vector<Sample> samples;  // those that come as tensors
  Batch batch;
  // For the batch's fields, if images are written directly into them:
  float* pixels = nullptr;
  uint8_t* bytes = nullptr;  // instead, when the rest is done on the device
  float* floats = nullptr;   // drawn for it
  int32_t* integers = nullptr;
  int64_t* labels = nullptr;
  std::vector<std::string> bad;  // by position in `ids`, the reason why a sample is omitted; "" for good ones. Empty if none may be omitted
  State stream_state;            // of a stream, after the last sample of this batch
  // Guarded by the loader's mutex:
  int64_t next_sample = 0;  // the first that no worker has taken
  int64_t done = 0;
  bool ready = false;
  std::exception_ptr error;
};

/// Gives the options back, or an Error(Usage). `dataset` is null for a stream.
LoaderOptions checked(LoaderOptions options, const Dataset* dataset);

/// Makes batches; const and used by many threads.
class BatchBuilder {
 public:
  BatchBuilder(std::shared_ptr<const Dataset> dataset, Pipeline pipeline, const LoaderOptions& options, DatasetInfo info);

  /// Allocates what can be allocated before the samples are seen.
  void open(Job& job) const;
  /// Makes samples [begin, end) of the job. An Error names the sample; where bad samples are skipped it is kept in `bad`.
  void fill(Job& job, int64_t begin, int64_t end, uint64_t seed) const;
  /// Takes bad samples out, puts the others together, pads, calls the finishing hook. A job without a good sample has no ids then.
  void close(Job& job) const;

 private:
  void make_sample(Job& job, int64_t position, uint64_t seed) const;
  void transform(Sample& sample, int64_t index, Philox& rng) const;
  void leave_out_bad(Job& job) const;
  void pad_sequences(Job& job) const;
  void add_captions(Job& job) const;
  void collate(Job& job) const;
  void pad(Job& job) const;
  void write(Job& job, int64_t position, const Picture& picture, Philox& rng) const;
  std::string where(int64_t index) const { return dataset_ != nullptr ? dataset_->where(index) : std::string(); }

  std::shared_ptr<const Dataset> dataset_;        // null for a stream
  const PictureDataset* pictures_ = nullptr;      // the same, when it is one
  const CaptionedPictures* captions_ = nullptr;   // the same, when it is one
  const SequenceDataset* sequences_ = nullptr;    // the same, when it is one
  Pipeline pipeline_;                             // the part on the host
  std::shared_ptr<const DeviceAugment> augment_;  // the part on the device; null: there is none
  LoaderOptions options_;
  DatasetInfo info_;
  int64_t channels_ = 0, height_ = 0, width_ = 0;
};

}  // namespace npu_train::detail
