/// Transforms of a complete batch on the training device: the loader provides bytes and the random draws of each image, and ATen operators
/// do the rest on the batch's device. Draws, arithmetic and rounding equal those of the transforms on the host, so the images are the same.
///
/// A chain is split after the last step that sizes images and has no device form (resize, random_resized_crop): up to there it runs on the
/// host, because images have different sizes; the rest, with the normalisation, runs on the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/core/seed.hpp"
#include "npu_train/data/transform.hpp"

namespace npu_train {

/// A transform for a batch of images with one size, as returned by Transform::device_form. Your own transforms may provide one, too.
class DeviceForm {
 public:
  virtual ~DeviceForm() = default;
  /// Number of draws of each kind per image.
  virtual int64_t floats() const { return 0; }
  virtual int64_t integers() const { return 0; }
  /// Draws the numbers of one image on the host: the same draws as in Transform::apply, in the same order.
  virtual void draw(Philox& /*rng*/, float* /*floats*/, int32_t* /*integers*/) const {}
  /// Transforms `pixels` [N, C, H, W]: fp32 with integers from 0 to 255, planes contiguous; may be changed in place. The result has the
  /// same form. `floats` [N, floats()] fp32 and `integers` [N, integers()] int32 are on the same device. No value may be read back to the
  /// host.
  virtual at::Tensor apply(at::Tensor pixels, const at::Tensor& floats, const at::Tensor& integers) const = 0;
};

/// The device part of a chain, for complete batches.
class DeviceAugment {
 public:
  /// Images of size `in` go through `steps`; then a byte of channel c becomes byte * scale[c] + shift[c].
  DeviceAugment(std::vector<std::shared_ptr<const DeviceForm>> steps, ImageSize in, const std::array<float, 4>& scale,
                const std::array<float, 4>& shift);

  /// Height and width of the input images.
  ImageSize input_size() const { return in_; }
  int64_t floats() const { return floats_; }
  int64_t integers() const { return integers_; }
  /// Draws floats() and integers() numbers for one image.
  void draw(Philox& rng, float* floats, int32_t* integers) const;

  /// Returns the batch as the host would have made it: bytes "input" [N, C, H, W] become fp32 (channels_last if requested), and the fields
  /// with the draws, kFloats and kIntegers, are removed.
  Batch finish(Batch batch, bool channels_last) const;

  static constexpr const char* kFloats = "augment.floats";      ///< [N, floats()] fp32; present if floats() > 0
  static constexpr const char* kIntegers = "augment.integers";  ///< [N, integers()] int32

 private:
  std::vector<std::shared_ptr<const DeviceForm>> steps_;
  ImageSize in_;
  std::array<float, 4> scale_, shift_;
  int64_t floats_ = 0, integers_ = 0;
};

/// A chain divided between host and device.
struct SplitPipeline {
  Pipeline host;          ///< without normalisation; its results are bytes of one size
  size_t host_steps = 0;  ///< number of the chain's steps in `host`
  std::shared_ptr<const DeviceAugment> device;
};

/// Splits a chain for images with `channels` channels and size `in` (-1 if sizes differ). Error(Usage) if the images do not end up with one
/// size, or a step of the device part has no device form; the message names the step.
SplitPipeline split_for_device(const Pipeline& pipeline, int64_t channels, ImageSize in);

/// Returns a summary: "on the host: random_resized_crop; on the device: horizontal_flip, normalize".
std::string where_it_runs(const Pipeline& pipeline, const SplitPipeline& split);

}  // namespace npu_train
