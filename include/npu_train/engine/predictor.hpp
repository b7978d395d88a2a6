/// A trained model for inference, made from a checkpoint without the data set or the optimizer.
///
///   auto predictor = npu_train::Predictor::from_checkpoint("outputs/resnet50_cifar10/version_0");
///   for (const auto& answer : predictor.classify("cat.jpg", 3)) std::cout << answer.name << " " << answer.probability << "\n";
///
/// An image in memory is passed as an ImageView, without a copy: predictor.classify({.data = pixels, .height = 480, .width = 640}).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/data/transform.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/device/offline_model.hpp"
#include "npu_train/engine/model_source.hpp"
#include "npu_train/engine/parts.hpp"

namespace npu_train {

// Converts image files, and pixels of a program, to inputs of a classifier, with the transforms of its validation.

class ImagePreparation {
 public:
  /// Uses the transforms of a configuration; `context.image_size` is the side of the square that they produce. An image of this size skips
  /// the steps `resize`. Error(Usage) as in Pipeline::from_config.
  ImagePreparation(std::vector<PartConfig> steps, const TransformContext& context,
                   const TransformRegistry& transforms = builtin_transforms());
  /// Returns ImageNet's preparation: resizes the shorter side to 256/224 of `side`, crops the centre, and normalises by `mean` and `std`
  /// (per channel, for values in [0, 1]).
  static ImagePreparation of_imagenet(int64_t side, const std::vector<double>& mean = imagenet_mean(),
                                      const std::vector<double>& std = imagenet_std());

  /// Parses the output of steps_text(). Error(Usage) if it is invalid.
  static ImagePreparation from_text(const std::string& steps, const TransformContext& context,
                                    const TransformRegistry& transforms = builtin_transforms());

  static const std::vector<double>& imagenet_mean();
  static const std::vector<double>& imagenet_std();

  /// Returns an image file as float32 [3, height, width], normalised. Error(Data) if it cannot be read.
  at::Tensor read(const std::string& path) const;
  /// Prepares pixels in the memory of a program. The result has the same bits as that of read() for a file with the same pixels if
  /// Resampling::exact is true (the default); otherwise read() may decode a file at a smaller scale. The pixels are only read, and only
  /// during the call. Error(Usage) as in Image::view.
  at::Tensor prepare(const ImageView& pixels) const;
  /// Returns the image without normalisation: uint8 [height, width, 3], RGB. Error(Data) if it cannot be read.
  at::Tensor read_bytes(const std::string& path) const;

  const std::vector<PartConfig>& steps() const { return steps_; }
  /// Returns the steps as YAML, as in a configuration: "[{name: resize, size: 36}, {name: center_crop, size: 32}, normalize]".
  std::string steps_text() const;
  const Pipeline& pipeline() const { return pipeline_; }

 private:
  template <class Run>
  auto run(const std::string& path, const Run& use) const;
  const Pipeline& pipeline_for(int64_t height, int64_t width) const {
    return height == side_ && width == side_ ? without_resize_ : pipeline_;
  }

  std::vector<PartConfig> steps_;
  Pipeline pipeline_, without_resize_;
  int64_t side_;
};

struct Answer {
  int64_t label = 0;
  std::string name;  ///< class name, or the label as text
  double probability = 0;
};

/// Meaning of a model's outputs: logits of one class (softmax), of several classes (sigmoid), or numbers.
enum class OutputMeaning { OneClass, SeveralClasses, Numbers };

/// Returns the `top` most probable classes for the logits [classes] or [1, classes] of an image. A class whose name is not in `classes` is
/// named by its label. Error(Usage) if the outputs are numbers.
std::vector<Answer> top_answers(const at::Tensor& logits, const std::vector<std::string>& classes, int64_t top = 5,
                                OutputMeaning meaning = OutputMeaning::OneClass);

class Predictor {
 public:
  /// Uses the model of a source (model_from) with the validation transforms of the checkpoint's run. Without a checkpoint, images are
  /// prepared as the files next to the weights describe: preprocessor_config.json (Hugging Face), or pretrained_cfg in config.json (timm).
  /// If there is no such file, they are prepared as for ImageNet. Errors: those of model_from(), and Error(Checkpoint) for a preparation
  /// that the transforms do not support.
  static Predictor from_source(const ModelSource& source, const std::string& device = "auto", const Parts& parts = builtin_parts());

  /// Uses the model of a checkpoint (with the averaged weights if it has any) and its validation transforms. `checkpoint` is a checkpoint,
  /// its checkpoints/ folder, or a run's folder. Error(Checkpoint) if it cannot be used. `parts` must have the network, data set and
  /// transforms of the training; callbacks and observers are not needed.
  static Predictor from_checkpoint(const std::string& checkpoint, const std::string& device = "auto", const Parts& parts = builtin_parts());
  /// Applies changes ("model.KEY=VALUE") to the checkpoint's configuration. A TorchScript model needs model.allow_code=true here, too.
  static Predictor from_checkpoint(const std::string& checkpoint, const std::vector<std::string>& overrides, const std::string& device,
                                   const Parts& parts = builtin_parts());

  /// Uses a named model with options and weights from a file. Images are prepared as in from_source(); for ImageNet that is: shorter side
  /// to 256/224 of the model's size, centre crop, ImageNet statistics. Error(Checkpoint) if the weights do not match the model; the message
  /// names the options with which they would match.
  static Predictor from_weights(const PartConfig& model, const std::string& weights, const std::string& device = "auto",
                                const Parts& parts = builtin_parts());
  static Predictor from_weights(const std::string& model, int64_t num_classes, const std::string& weights,
                                const std::string& device = "auto", const Parts& parts = builtin_parts());

  /// Returns fp32 logits [N, classes] on the host for a prepared input [N, C, H, W].
  at::Tensor operator()(const at::Tensor& input) const;
  /// Returns an image file as the model's input [C, H, W]. An image that already has the crop's size is not resized. Error(Data) if it
  /// cannot be read.
  at::Tensor read_image(const std::string& path) const { return preparation_.read(path); }
  /// Returns fp32 logits [1, classes] on the host for an image in the memory of the program, or [N, classes] for N images, which are
  /// computed as one batch. The pixels are only read, and only during the call. They are prepared like the pixels of a file (see
  /// ImagePreparation::prepare), so a file with the same pixels gives logits with the same bits in a batch of the same size. Error(Usage)
  /// as in Image::view; for N images the message names the image.
  at::Tensor predict(const ImageView& image) const { return predict(std::vector<ImageView>{image}); }
  at::Tensor predict(const std::vector<ImageView>& images) const;
  /// Returns the `top` most probable classes of an image.
  std::vector<Answer> classify(const std::string& path, int64_t top = 5) const;
  std::vector<Answer> classify(const ImageView& image, int64_t top = 5) const { return top_answers(predict(image), top); }
  std::vector<Answer> top_answers(const at::Tensor& logits, int64_t top) const {
    return npu_train::top_answers(logits, classes_, top, meaning_);
  }

  const Model& model() const { return model_; }
  const std::vector<std::string>& classes() const { return classes_; }
  /// Returns the meaning that the task of the checkpoint's run declares; OneClass without a checkpoint.
  OutputMeaning meaning() const { return meaning_; }
  /// Returns the checkpoint that contains the weights; "" if they are from another file. why() returns the reason for choosing it.
  const std::string& checkpoint() const { return checkpoint_; }
  const std::string& why() const { return why_; }
  /// Whether the weights are averages.
  bool averages() const { return averages_; }
  /// Converts image files to inputs of the model.
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
  OutputMeaning meaning_ = OutputMeaning::OneClass;
};

// A classifier in an offline model (.om) on an Ascend NPU: converts image files to logits. Needs CANN at run time, but no libtorch device.
//
//   npu_train::OfflinePredictor predictor(npu_train::OfflineModel("model.om"), npu_train::ImagePreparation::of_imagenet(224));
//   const auto logits = predictor.logits({"cat.jpg", "dog.jpg"});

/// Input size of a model, and whether AIPP normalises the images on the chip.
struct OfflineImages {
  int64_t height = 0, width = 0;
  bool aipp = false;
};

/// Returns the kind of images that the model accepts. Error(Data) unless it has one input for RGB images (fp32 or fp16 [batch, 3, height,
/// width]; with AIPP bytes [batch, height, width, 3]) and a floating-point output [batch, classes].
OfflineImages images_of(const OfflineModel& model);

class OfflinePredictor {
 public:
  /// Error(Data) as in images_of().
  OfflinePredictor(OfflineModel model, ImagePreparation preparation);

  /// Returns fp32 logits [images, classes] of image files. Images are computed in the largest compiled batches that they fill; the rest is
  /// padded. Error(Data) if a file cannot be read, or the preparation produces another size than the model's input. If `bad` is given, it
  /// is called with the image's number instead of throwing the error, and the logits of the image are NaN. If `progress` is given, it is
  /// called after each batch with the number of images so far.
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
