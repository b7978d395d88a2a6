/// A chain of image transforms by name, ending in floats. The result for an image depends only on its own generator, seeded by (seed,
/// epoch, index): not on threads, order or other images.
///
/// A program adds its own transforms to Parts::transforms:
///   parts.transforms.add<InvertOptions>("invert", "inverts colours with probability p", [](const InvertOptions& options) {
///     return npu_train::TransformPart{std::make_shared<Invert>(options.p), {}};
///   });   // data: {train_transforms: [{name: invert, p: 0.2}, normalize]}
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/core/registry.hpp"
#include "npu_train/core/seed.hpp"
#include "npu_train/data/dataset.hpp"
#include "npu_train/data/image.hpp"
#include "npu_train/data/image_dataset.hpp"

namespace npu_train {

class DeviceForm;

/// Height and width; -1 if unknown before an image is read.
using ImageSize = std::pair<int64_t, int64_t>;

/// One transform of an image. Called from many threads at once; all random numbers come from `rng`.
class Transform {
 public:
  virtual ~Transform() = default;
  virtual Image apply(Image image, Philox& rng) const = 0;
  /// Like apply(), for an image file: a transform that needs only a part of it, or a smaller size, decodes less.
  virtual Image apply_encoded(const std::vector<uint8_t>& file, const std::string& where, Philox& rng) const;
  /// Returns the output size for the input size `in`.
  virtual ImageSize output_size(ImageSize in) const { return in; }
  /// Returns the transform for complete batches on a device, for images of this size (data/device_augment.hpp); null if not implemented.
  virtual std::shared_ptr<const DeviceForm> device_form(int64_t /*channels*/, ImageSize /*in*/) const { return nullptr; }
};

/// Values of the data set for options that a transform leaves open.
struct TransformContext {
  int64_t image_size = 0;         ///< replaces `size: 0`
  std::vector<double> mean, std;  ///< replace missing numbers of `normalize`
  bool exact = true;              ///< Resampling::exact
};

/// Conversion of bytes to floats: (value / 255 - mean) / std. It is part of the chain, but applied last, together with the copy.
struct Normalization {
  std::vector<double> mean, std;  ///< one per channel, or empty: values stay in [0, 1]
};

/// The result of a registry entry: a step on bytes, or the normalisation.
struct TransformPart {
  std::shared_ptr<const Transform> step;
  std::optional<Normalization> normalization;
};

using TransformRegistry = Registry<TransformPart, const TransformContext&>;

/// Adds resize, center_crop, random_crop, random_resized_crop, horizontal_flip, color_jitter, random_rotation, gaussian_blur, rand_augment,
/// random_erasing and normalize.
void add_builtin_transforms(TransformRegistry& registry);
TransformRegistry builtin_transforms();

/// Transforms in order. `normalize` must be last (random_erasing works on bytes, too, and precedes it).
class Pipeline {
 public:
  /// An empty chain: values in [0, 1].
  Pipeline() : Pipeline(std::vector<std::shared_ptr<const Transform>>{}) {}
  /// Error(Usage) if a normalisation has a standard deviation that is not positive.
  explicit Pipeline(std::vector<std::shared_ptr<const Transform>> steps, Normalization normalization = {});
  /// Builds a chain from `[{name: random_crop, size: 32, padding: 4}, {name: normalize}]`. Error(Usage) for unknown names, bad options, or
  /// a step after `normalize`.
  static Pipeline from_config(const std::vector<PartConfig>& parts, const std::string& path, const TransformContext& context,
                              const TransformRegistry& registry = builtin_transforms());

  bool empty() const { return steps_.empty() && normalization_.mean.empty(); }
  ImageSize output_size(ImageSize in) const;
  const Normalization& normalization() const { return normalization_; }
  const std::vector<std::shared_ptr<const Transform>>& steps() const { return steps_; }
  /// Returns the name of a step for messages: its name in the configuration, or its number.
  std::string step_name(size_t step) const;
  /// Normalisation of four channels: a byte of channel c becomes byte * scale()[c] + shift()[c].
  const std::array<float, 4>& scale() const { return scale_; }
  const std::array<float, 4>& shift() const { return shift_; }

  /// Runs the chain on one image and writes the result. `where` names the image in errors. Error(Data) if it cannot be decoded or the
  /// result does not have the target's size.
  void run(const LabelledImage& image, const std::string& where, Philox& rng, const FloatTarget& target) const;
  /// Runs the chain without the normalisation.
  Image run_to_bytes(const LabelledImage& image, const std::string& where, Philox& rng) const;
  /// Runs the chain and returns a float tensor [C, H, W] (for prediction and tests).
  at::Tensor run_to_tensor(const LabelledImage& image, const std::string& where, Philox& rng) const;

 private:
  std::vector<std::shared_ptr<const Transform>> steps_;
  std::vector<std::string> names_;  // names of the steps; empty if the steps were given in code
  Normalization normalization_;
  std::array<float, 4> scale_, shift_;
};

/// Returns the generator of one sample of one epoch.
inline Philox sample_rng(uint64_t seed, int64_t epoch, int64_t index) {
  return Philox(derive_seed(seed, "augment", static_cast<uint64_t>(epoch), static_cast<uint64_t>(index)));
}

}  // namespace npu_train
