/// A classifier in an offline model (.om) on an Ascend NPU: converts image files to logits. Needs CANN at run time, but no libtorch device.
///
///   npu_train::OfflinePredictor predictor(npu_train::OfflineModel("model.om"), npu_train::ImagePreparation::of_imagenet(224));
///   const auto logits = predictor.logits({"cat.jpg", "dog.jpg"});
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "npu_train/device/offline_model.hpp"
#include "npu_train/engine/image_preparation.hpp"

namespace npu_train {

/// Input size of a model, and whether AIPP normalises the images on the chip.
struct OfflineImages {
  int64_t height = 0, width = 0;
  bool aipp = false;
};

/// Returns the images that the model accepts. Error(Data) unless it has one input for RGB images (fp32 or fp16 [batch, 3, height, width];
/// with AIPP bytes [batch, height, width, 3]) and a floating-point output [batch, classes].
OfflineImages images_of(const OfflineModel& model);

class OfflinePredictor {
 public:
  /// Error(Data) as in images_of().
  OfflinePredictor(OfflineModel model, ImagePreparation preparation);

  /// Returns fp32 logits [images, classes] of image files. Images are computed in the largest compiled batches that they fill; the
  /// rest is padded. Error(Data) if a file cannot be read, or the preparation produces another size than the model's input. With `bad`,
  /// calls it with the image's number instead; the logits are then NaN. With `progress`, calls it after each batch with the number of
  /// images so far.
  using OnBadImage = std::function<void(size_t image, const Error& error)>;
  using OnProgress = std::function<void(size_t done)>;
  at::Tensor logits(const std::vector<std::string>& paths, const OnBadImage& bad = {}, const OnProgress& progress = {});

  const OfflineModel& model() const { return model_; }
  int64_t classes() const;

 private:
  at::Tensor read(const std::string& path) const;

  OfflineModel model_;
  ImagePreparation preparation_;
  OfflineImages images_;
};

}  // namespace npu_train
