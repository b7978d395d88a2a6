/// Data that need no download, drawn from a seed: images of coloured shapes, questions and captions about them, and text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/data/data_options.hpp"
#include "npu_train/data/datasets.hpp"
#include "npu_train/data/image_dataset.hpp"
#include "npu_train/data/image_text.hpp"
#include "npu_train/data/prefixed.hpp"

namespace npu_train {

// Ten classes of coloured shapes, 32 x 32 RGB in CIFAR's layout. Only the shape determines the class; position, size, rotation, colours
// (light on dark or dark on light), background and noise are drawn per image. A linear classifier on the pixels cannot learn the classes; a
// small convolutional network can.

/// The difficulty of the images.
struct ShapeStyle {
  double noise = 0.06;      ///< standard deviation of pixel noise, 1 = full scale
  double min_scale = 0.28;  ///< radius of the smallest shape, 1 = side of the image
  double max_scale = 0.42;  ///< radius of the largest shape
  double rotation = 20;     ///< largest rotation in either direction, degrees
  double shift = 0.10;      ///< largest displacement of the centre, 1 = side of the image
  double contrast = 0.45;   ///< minimum difference of brightness between shape and background, 1 = full scale
  static const ConfigTable<ShapeStyle>& config_table();
};

/// Returns `count` images with equally frequent labels 0..9, shuffled. Image i depends only on (seed, i).
MemoryImages generate_shapes(int64_t count, uint64_t seed, const ShapeStyle& style = {});

struct GeneratedOptions : DataOptions {
  int64_t train_size = 4096;
  int64_t val_size = 1000;
  int64_t data_seed = 1;
  ShapeStyle style;
  GeneratedOptions();
  static const ConfigTable<GeneratedOptions>& config_table();
};

// Questions about these images, and captions, as bytes.

/// Each image of `shapes` with one question: "what is it?", answered by its class name, or "is it a star?", answered by yes or no, equally
/// often. Without questions it has a caption such as "a star". The text depends only on the seed and the image's number.
class GeneratedQuestions final : public CaptionedImages {
 public:
  /// Error(Usage) if classes have no names, Error(Data) if a text has more tokens than rules.context.
  GeneratedQuestions(MemoryImages shapes, const DocumentRules& rules, const std::optional<QuestionOptions>& questions, uint64_t seed);

  int64_t size() const override { return shapes_.size(); }
  LabelledImage image(int64_t index) const override { return shapes_.image(index); }
  DatasetInfo info() const override;
  std::vector<int64_t> caption(int64_t index) const override;
  int64_t prompt(int64_t index) const override;
  std::optional<QuestionOptions> questions() const override { return questions_; }
  int64_t padding() const override { return rules_.pad_token; }
  int64_t longest() const override { return rules_.context; }

 private:
  MemoryImages shapes_;
  DocumentRules rules_;
  std::optional<QuestionOptions> questions_;
  std::vector<QuestionTokens> texts_;
};

struct GeneratedQuestionsOptions : GeneratedOptions, QuestionOptions {
  int64_t context = 64;
  GeneratedQuestionsOptions() { train_size = 2048, val_size = 256; }
  static const ConfigTable<GeneratedQuestionsOptions>& config_table();
};

struct GeneratedCaptionsOptions : GeneratedOptions {
  int64_t context = 64;
  GeneratedCaptionsOptions() { train_size = 2048, val_size = 256; }
  static const ConfigTable<GeneratedCaptionsOptions>& config_table();
};

DatasetPair open_generated_captions(const GeneratedCaptionsOptions& options, const TransformRegistry& transforms);
DatasetPair open_generated_questions(const GeneratedQuestionsOptions& options, const TransformRegistry& transforms);

// Text that needs no download: English sentences of a small grammar, drawn from a seed, with bytes as tokens.

/// Returns `bytes` bytes of sentences such as "the old dogs see a red house.". Number and verb agree, so the text has dependencies between
/// words that a model can learn. It depends only on the arguments. Error(Usage) for a negative or huge number.
std::string generate_text(int64_t bytes, uint64_t seed);

struct GeneratedTextOptions : DataOptions, PrefixOptions {
  int64_t train_size = 2048;
  int64_t val_size = 128;
  int64_t context = 64;
  int64_t data_seed = 1;
  static const ConfigTable<GeneratedTextOptions>& config_table();
};

}  // namespace npu_train
