/// A classifier as an offline model (.om) on an Ascend NPU: from image files to logits. Needs CANN at run time, and no libtorch device.
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

/// Height and width of the images that a model takes, and whether AIPP normalises them on the chip.
struct OfflineImages {
  int64_t height = 0, width = 0;
  bool aipp = false;
};

/// Error(Data) if the model does not have one input for RGB images (fp32 or fp16 [batch, 3, height, width], or with AIPP bytes
/// [batch, height, width, 3]) and an output [batch, classes] of floating point.
OfflineImages images_of(const OfflineModel& model);

class OfflinePredictor {
 public:
  /// Error(Data) as images_of().
  OfflinePredictor(OfflineModel model, ImagePreparation preparation);

  /// Logits [images, classes], fp32, of JPEG or PNG files. The images are computed in the largest compiled batches that they fill; the rest
  /// is padded. Error(Data) for a file that cannot be read, or if the preparation produces another size than that of the model. With `bad`,
  /// that function is called instead, with the number of the image, whose logits are NaN.
  using OnBadImage = std::function<void(size_t image, const Error& error)>;
  at::Tensor logits(const std::vector<std::string>& paths, const OnBadImage& bad = {});

  const OfflineModel& model() const { return model_; }
  int64_t classes() const;

 private:
  at::Tensor read(const std::string& path) const;

  OfflineModel model_;
  ImagePreparation preparation_;
  OfflineImages images_;
};

}  // namespace npu_train
