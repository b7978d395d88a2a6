/// Transforms of a whole batch on the device that trains: the loader gives bytes and what was drawn for each picture, ATen operators do the
/// rest wherever the batch lies. Draws, arithmetic and rounding are those of the transforms on the host, so that the pictures are the same.
///
/// A chain is cut in two: what comes before the pictures have one size, and up to the last step that sizes them (resize,
/// random_resized_crop), is done on the host; what follows, with the normalisation, on the device.
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

/// One transform for a batch of pictures of one size. What Transform::device_form gives; a transform of your own may give one, too.
class DeviceForm {
 public:
  virtual ~DeviceForm() = default;
  /// How many numbers of each kind a picture brings along.
  virtual int64_t floats() const { return 0; }
  virtual int64_t integers() const { return 0; }
  /// Draws for one picture, on the host: what Transform::apply would draw, in the same order.
  virtual void draw(Philox& /*rng*/, float* /*floats*/, int32_t* /*integers*/) const {}
  /// `pixels` [N, C, H, W] are fp32 of whole numbers from 0 to 255, planes contiguous, and may be changed in place; so is what comes out.
  /// `floats` [N, floats()] fp32 and `integers` [N, integers()] int32 are on the same device. Nothing may be read back to the host.
  virtual at::Tensor apply(at::Tensor pixels, const at::Tensor& floats, const at::Tensor& integers) const = 0;
};

/// The end of a chain, for a whole batch.
class DeviceAugment {
 public:
  /// Pictures of size `in` go through `steps`; then a byte of channel c becomes byte * scale[c] + shift[c].
  DeviceAugment(std::vector<std::shared_ptr<const DeviceForm>> steps, PictureSize in, const std::array<float, 4>& scale,
                const std::array<float, 4>& shift);

  /// Height and width that it takes.
  PictureSize input_size() const { return in_; }
  int64_t floats() const { return floats_; }
  int64_t integers() const { return integers_; }
  /// For one picture, floats() and integers() numbers.
  void draw(Philox& rng, float* floats, int32_t* integers) const;

  /// The batch as the host would have made it: "input" of bytes [N, C, H, W] becomes fp32, channels_last where asked; the drawn numbers,
  /// the fields kFloats and kIntegers, go.
  Batch finish(Batch batch, bool channels_last) const;

  static constexpr const char* kFloats = "augment.floats";      ///< [N, floats()] fp32; there when floats() > 0
  static constexpr const char* kIntegers = "augment.integers";  ///< [N, integers()] int32

 private:
  std::vector<std::shared_ptr<const DeviceForm>> steps_;
  PictureSize in_;
  std::array<float, 4> scale_, shift_;
  int64_t floats_ = 0, integers_ = 0;
};

/// A chain in two.
struct SplitPipeline {
  Pipeline host;          ///< without normalisation; gives bytes of one size
  size_t host_steps = 0;  ///< how many of the chain's
  std::shared_ptr<const DeviceAugment> device;
};

/// For pictures of `channels` and size `in` (-1 where they differ). Error(Usage) when the pictures do not come to one size, and when a step
/// of the second part has no form for devices: it is named.
SplitPipeline split_for_device(const Pipeline& pipeline, int64_t channels, PictureSize in);

/// "on the host: random_resized_crop; on the device: horizontal_flip, normalize".
std::string where_it_runs(const Pipeline& pipeline, const SplitPipeline& split);

}  // namespace npu_train
