/// Streams of labelled images. Only the places of the images are read in sequence; the loader's workers read and decode the images.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "npu_train/data/dataset.hpp"
#include "npu_train/data/image_dataset.hpp"

namespace npu_train {

/// An image of a stream that has not been read.
struct PendingImage {
  std::string where;                    ///< for messages: a file and a sample
  std::function<LabelledImage()> read;  ///< called from any thread; Error(Data) if it cannot be read
};

class ImageStream : public IterableDataset {
 public:
  /// Returns the next image, or nullopt at the end. An image that cannot be read is an error of its `read`. After an error of the stream
  /// itself, the next call continues after the damaged part, so that the stream ends.
  virtual std::optional<PendingImage> next_image() = 0;
  /// Returns a text that is equal on all ranks if they have the same files, in the same order.
  virtual std::string source() const = 0;
  /// Reads and decodes the next image: "input" of uint8 [C, H, W] and "target".
  std::optional<Sample> next() final;
};

/// Decodes an image: "input" of uint8 [C, H, W], and "target", the label of the image or, if `targets` is true, its targets.
Sample decoded_sample(const LabelledImage& image, const std::string& where, bool targets, int64_t index);

}  // namespace npu_train
