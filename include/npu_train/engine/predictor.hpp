/// A trained model for inference: from a checkpoint only, without its data set or its optimizer.
///
///   auto predictor = npu_train::Predictor::from_checkpoint("outputs/resnet50_cifar10/version_0");
///   for (const auto& answer : predictor.classify("cat.jpg", 3)) std::cout << answer.name << " " << answer.probability << "\n";
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "npu_train/device/device.hpp"
#include "npu_train/engine/image_preparation.hpp"
#include "npu_train/engine/model_source.hpp"
#include "npu_train/engine/parts.hpp"

namespace npu_train {

struct Answer {
  int64_t label = 0;
  std::string name;  ///< class name, or the label as text
  double probability = 0;
};

/// The `top` most probable classes for the logits [classes] or [1, classes] of an image. A class without a name in `classes` has its label
/// as the name.
std::vector<Answer> top_answers(const at::Tensor& logits, const std::vector<std::string>& classes, int64_t top = 5);

class Predictor {
 public:
  /// The model of a source (model_from) and the transforms of its images: those of the validation of the checkpoint's run, or those of
  /// ImageNet. Errors: those of model_from().
  static Predictor from_source(const ModelSource& source, const std::string& device = "auto", const Parts& parts = builtin_parts());

  /// The model of a checkpoint (with the EMA's weights if it has any) and the image transforms of its validation.
  /// `checkpoint` is a checkpoint, the checkpoints/ folder above it, or a run's folder. Error(Checkpoint) if it cannot be used.
  /// `parts` must have the network, the data set and the transforms of the training, not its callbacks and observers.
  static Predictor from_checkpoint(const std::string& checkpoint, const std::string& device = "auto", const Parts& parts = builtin_parts());
  /// The same with changes of its configuration ("model.KEY=VALUE"): a TorchScript model needs model.allow_code=true here too.
  static Predictor from_checkpoint(const std::string& checkpoint, const std::vector<std::string>& overrides, const std::string& device,
                                   const Parts& parts = builtin_parts());

  /// A named model, with its options, and weights from a file; images are prepared as for ImageNet: shorter side to 256/224 of the model's
  /// size, centre crop, ImageNet statistics. Error(Checkpoint) if the weights do not match the model; the message names the options that
  /// they would match.
  static Predictor from_weights(const PartConfig& model, const std::string& weights, const std::string& device = "auto",
                                const Parts& parts = builtin_parts());
  static Predictor from_weights(const std::string& model, int64_t num_classes, const std::string& weights,
                                const std::string& device = "auto", const Parts& parts = builtin_parts());

  /// Logits [N, classes], fp32 on the host, for a prepared input [N, C, H, W].
  at::Tensor operator()(const at::Tensor& input) const;
  /// A JPEG or PNG file as the model's input [C, H, W]. An image that already has the crop's size is not resized. Error(Data).
  at::Tensor read_picture(const std::string& path) const { return preparation_.read(path); }
  /// The `top` most probable classes of an image.
  std::vector<Answer> classify(const std::string& path, int64_t top = 5) const;
  std::vector<Answer> top_answers(const at::Tensor& logits, int64_t top) const { return npu_train::top_answers(logits, classes_, top); }

  const Model& model() const { return model_; }
  const std::vector<std::string>& classes() const { return classes_; }
  /// The checkpoint whose weights the model has, "" if they are of another file, and why it is this one.
  const std::string& checkpoint() const { return checkpoint_; }
  const std::string& why() const { return why_; }
  /// Whether the weights are averages (EMA).
  bool averages() const { return averages_; }
  /// From an image file to an input of the model.
  const ImagePreparation& preparation() const { return preparation_; }
  const Pipeline& pipeline() const { return preparation_.pipeline(); }

 private:
  Predictor(Model model, ImagePreparation preparation, const std::string& device);

  Model model_;
  Device device_;
  ImagePreparation preparation_;
  std::vector<std::string> classes_;
  std::string checkpoint_, why_;
  bool averages_ = false;
};

}  // namespace npu_train
