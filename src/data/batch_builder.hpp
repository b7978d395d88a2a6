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
#include "npu_train/data/image_dataset.hpp"
#include "npu_train/data/image_stream.hpp"
#include "npu_train/data/image_text.hpp"
#include "npu_train/data/loader.hpp"

namespace npu_train::detail {

struct Job {
  int64_t epoch = 0;
  int64_t index = 0;                 // index of the batch in the epoch
  std::vector<int64_t> ids;          // indices of the real samples; close() removes those of bad ones
  int64_t to_make = 0;               // number of samples that workers make, which close() leaves as it is
  std::vector<Sample> samples;       // samples that are tensors, not images
  std::vector<PendingImage> images;  // images of a stream
  Batch batch;
  // Destinations of images that are decoded directly into the batch:
  float* pixels = nullptr;
  uint8_t* bytes = nullptr;  // instead of `pixels`, if the last transforms run on the device
  float* floats = nullptr;   // draws of these transforms
  int32_t* integers = nullptr;
  int64_t* labels = nullptr;     // [rows], or
  float* targets = nullptr;      // [rows, ImageDataset::targets()]
  std::vector<std::string> bad;  // by position in `ids`: why a sample is omitted, "" for good ones; empty if none may be omitted
  State stream_state;            // state of a stream after the last sample of this batch
  // Guarded by the loader's mutex:
  int64_t next_sample = 0;  // first sample that no worker has taken
  int64_t done = 0;
  bool ready = false;
  std::exception_ptr error;
};

/// Returns the options, or throws Error(Usage). `dataset` is null for a stream.
LoaderOptions checked(LoaderOptions options, const Dataset* dataset);

/// Makes batches. Const; many threads use it at once.
class BatchBuilder {
 public:
  /// `dataset` is null for a stream; `image_stream`: whether it is a stream of images.
  BatchBuilder(std::shared_ptr<const Dataset> dataset, bool image_stream, Pipeline pipeline, const LoaderOptions& options,
               DatasetInfo info);

  /// Allocates the tensors whose shapes are known before the samples.
  void open(Job& job) const;
  /// Makes samples [begin, end) of the job. An Error names the sample; if bad samples are skipped, it is kept in `bad` instead.
  void fill(Job& job, int64_t begin, int64_t end, uint64_t seed) const;
  /// Removes bad samples, combines the others, pads, and calls the finishing hook. Afterwards a job without a good sample has no ids.
  void close(Job& job) const;

 private:
  void make_sample(Job& job, int64_t position, uint64_t seed) const;
  void transform(Sample& sample, int64_t index, Philox& rng) const;
  void leave_out_bad(Job& job) const;
  void pad_sequences(Job& job) const;
  void add_captions(Job& job) const;
  void collate(Job& job) const;
  void pad(Job& job) const;
  void write(Job& job, int64_t position, const LabelledImage& image, Philox& rng) const;
  void write_target(Job& job, int64_t position, const LabelledImage& image) const;
  std::string where(const Job& job, int64_t position) const;

  std::shared_ptr<const Dataset> dataset_;        // null for a stream
  const ImageDataset* images_ = nullptr;          // dataset_ if it has this type, else null
  const CaptionedImages* captions_ = nullptr;     // dataset_ if it has this type, else null
  const SequenceDataset* sequences_ = nullptr;    // dataset_ if it has this type, else null
  bool decodes_;                                  // whether images, of images_ or of a stream, are decoded into the batch
  int64_t targets_ = 0;                           // number of targets of each image; 0: images have labels
  Pipeline pipeline_;                             // the part on the host
  std::shared_ptr<const DeviceAugment> augment_;  // the part on the device, or null
  LoaderOptions options_;
  DatasetInfo info_;
  int64_t channels_ = 0, height_ = 0, width_ = 0;
};

}  // namespace npu_train::detail
