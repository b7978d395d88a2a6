/// Transforms of a complete batch on the training device: the loader provides bytes and the random draws of each image, and ATen operators
/// do the rest on the batch's device. Draws, arithmetic and rounding equal those of the transforms on the host, so the images are the same.
///
/// A chain is split in two: the part before the images have one size, up to the last step that sizes them (resize, random_resized_crop),
/// runs on the host; the rest, with the normalisation, runs on the device.
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

/// One transform for a batch of images with one size: the result of Transform::device_form. A transform of your own may also provide one.
class DeviceForm {
 public:
  virtual ~DeviceForm() = default;
  /// Number of draws of each kind per image.
  virtual int64_t floats() const { return 0; }
  virtual int64_t integers() const { return 0; }
  /// Draws for one image, on the host: the same as in Transform::apply, in the same order.
  virtual void draw(Philox& /*rng*/, float* /*floats*/, int32_t* /*integers*/) const {}
  /// `pixels` [N, C, H, W] are fp32 with whole numbers from 0 to 255, planes contiguous, and may be changed in place; the result has the
  /// same form. `floats` [N, floats()] fp32 and `integers` [N, integers()] int32 are on the same device. No value may be read back to the
  /// host.
  virtual at::Tensor apply(at::Tensor pixels, const at::Tensor& floats, const at::Tensor& integers) const = 0;
};

/// The end of a chain, for a complete batch.
class DeviceAugment {
 public:
  /// Images of size `in` go through `steps`; then a byte of channel c becomes byte * scale[c] + shift[c].
  DeviceAugment(std::vector<std::shared_ptr<const DeviceForm>> steps, PictureSize in, const std::array<float, 4>& scale,
                const std::array<float, 4>& shift);

  /// Height and width of its input.
  PictureSize input_size() const { return in_; }
  int64_t floats() const { return floats_; }
  int64_t integers() const { return integers_; }
  /// For one image, floats() and integers() numbers.
  void draw(Philox& rng, float* floats, int32_t* integers) const;

  /// The batch as the host would have made it: "input" of bytes [N, C, H, W] becomes fp32, channels_last if requested; the fields of draws,
  /// kFloats and kIntegers, are removed.
  Batch finish(Batch batch, bool channels_last) const;

  static constexpr const char* kFloats = "augment.floats";      ///< [N, floats()] fp32; present if floats() > 0
  static constexpr const char* kIntegers = "augment.integers";  ///< [N, integers()] int32

 private:
  std::vector<std::shared_ptr<const DeviceForm>> steps_;
  PictureSize in_;
  std::array<float, 4> scale_, shift_;
  int64_t floats_ = 0, integers_ = 0;
};

/// A chain in two.
struct SplitPipeline {
  Pipeline host;          ///< without normalisation; returns bytes of one size
  size_t host_steps = 0;  ///< number of the chain's steps in it
  std::shared_ptr<const DeviceAugment> device;
};

/// For images of `channels` and size `in` (-1 if they differ). Error(Usage) if the images do not get one size, and if a step of the second
/// part is not implemented for devices: the message names it.
SplitPipeline split_for_device(const Pipeline& pipeline, int64_t channels, PictureSize in);

/// "on the host: random_resized_crop; on the device: horizontal_flip, normalize".
std::string where_it_runs(const Pipeline& pipeline, const SplitPipeline& split);

}  // namespace npu_train
