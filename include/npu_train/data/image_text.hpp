/// Images with captions, or with questions and answers, from a folder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/data/data_options.hpp"
#include "npu_train/data/documents.hpp"
#include "npu_train/data/picture_dataset.hpp"

namespace npu_train {

/// The tokens of a text in whose place a network puts its image, and the text around question and answer.
struct QuestionOptions {
  int64_t image_token = 255;  ///< a token that no text contains
  int64_t image_tokens = 16;  ///< how many of them an image has: as many as the network makes vectors of it
  int64_t separator = 10;     ///< between question and answer: a line feed; below 0: nothing
  /// Error(Usage) for numbers out of range.
  void check() const;
};

/// A text, and how many of its first tokens do not count in the loss.
struct QuestionTokens {
  std::vector<int32_t> tokens;
  int64_t prompt = 0;
};

/// Images of which each has a text. The Loader adds the texts of a batch as "tokens", int64 [batch, tokens]: filled up to the longest one,
/// or to the longest possible one if shapes must not change. If the texts are questions with answers, "tokens" are all but the last one of
/// each text, and "target", int64 [batch, tokens], has the token that follows each, or -100 where it is not of the answer.
class CaptionedPictures : public PictureDataset {
 public:
  /// At least one token, or two. Called from several threads at once.
  virtual std::vector<int64_t> caption(int64_t index) const = 0;
  /// Of texts with answers, the tokens before the answer: at least 1.
  virtual int64_t prompt(int64_t /*index*/) const { return 0; }
  /// The image tokens of each text; nothing for captions.
  virtual std::optional<QuestionOptions> questions() const { return std::nullopt; }
  virtual int64_t padding() const = 0;  ///< the id that fills
  virtual int64_t longest() const = 0;  ///< tokens
};

/// The pairs of a file with one JSON object in a line, {"image": "a.jpg", "text": "..."}: images (.jpg, .jpeg, .png) by their path in
/// `root`, with a text, or "tokens" in its place, as in LabelledTexts. An image may have several lines. With `questions` a line is
/// {"image": "a.jpg", "question": "...", "answer": "..."}; either may be a list of ids instead. Its text is begin_token, image_tokens times
/// the image_token, the question, the separator, the answer and end_token. The answer alone may be truncated.
class ImageText final : public CaptionedPictures {
 public:
  /// Error(Data) with file and line for a line that is not such an object, for a name that leads out of `root` or is no image, for an image
  /// that does not exist, and for a bad text; the last two are omitted and counted if rules.skip_bad. Error(Data) if no pair remains.
  ImageText(const std::string& root, const std::vector<std::string>& files, const DocumentRules& rules,
            const std::optional<QuestionOptions>& questions = std::nullopt);

  int64_t size() const override { return size_; }
  Picture picture(int64_t index) const override;
  std::vector<int64_t> caption(int64_t index) const override;
  int64_t prompt(int64_t index) const override;
  std::optional<QuestionOptions> questions() const override { return questions_; }
  DatasetInfo info() const override;
  std::string where(int64_t index) const override;
  int64_t padding() const override { return rules_.pad_token; }
  int64_t longest() const override { return rules_.context; }
  const DocumentCounts& counts() const { return counts_; }
  int64_t missing_images() const { return missing_; }
  /// Paths in `root` of all images that the lines name, sorted.
  std::vector<std::string> images() const;
  std::shared_ptr<ImageText> part(int64_t first, int64_t count) const;

 private:
  struct Pairs;

  std::string root_;
  DocumentRules rules_;
  std::optional<QuestionOptions> questions_;
  DocumentCounts counts_;
  int64_t missing_ = 0;
  std::shared_ptr<const Pairs> pairs_;
  int64_t first_ = 0, size_ = 0;
};

struct ImageTextOptions : DataOptions {
  std::string root;
  std::string train = "train.jsonl";  ///< file of the training pairs, in root
  std::string val;                    ///< that of the validation; empty: val_fraction
  double val_fraction = 0;
  int64_t context = 77;
  std::string long_documents = "error";
  int64_t begin_token = -1;
  int64_t end_token = 0;
  int64_t pad_token = 0;
  int64_t vocab_size = 0;
  ImageTextOptions();
  static const ConfigTable<ImageTextOptions>& config_table();
};

struct ImageQuestionsOptions : ImageTextOptions, QuestionOptions {
  ImageQuestionsOptions();
  static const ConfigTable<ImageQuestionsOptions>& config_table();
};

/// The keys of a data set of images with questions.
template <class T>
ConfigTable<T> question_fields(ConfigTable<T> table) {
  const auto token = between(0, (1 << 24) - 1);
  // Type arguments are spelled out: a member of the base is not deduced as one of T.
  table.template field<int64_t>("image_token", &QuestionOptions::image_token,
                                "the token that is replaced by a part of the image; the model's", token);
  table.template field<int64_t>("image_tokens", &QuestionOptions::image_tokens,
                                "how many of them begin each text; the model's: (image_size / patch_size / pixel_shuffle) squared",
                                between(1, 1 << 16));
  table.template field<int64_t>("separator", &QuestionOptions::separator, "token between question and answer: a line feed; -1: nothing",
                                between(-1, (1 << 24) - 1));
  return table;
}

}  // namespace npu_train
