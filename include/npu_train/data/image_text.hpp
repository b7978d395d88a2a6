/// Images with captions, or with questions and answers, from a folder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/data/data_options.hpp"
#include "npu_train/data/documents.hpp"
#include "npu_train/data/image_dataset.hpp"

namespace npu_train {

/// Special tokens of a question about an image: placeholders that the network replaces by the image, and a separator.
struct QuestionOptions {
  int64_t image_token = 255;  ///< a token that no text contains
  int64_t image_tokens = 16;  ///< number of placeholders: the number of vectors that the network makes from an image
  int64_t separator = 10;     ///< token between question and answer, by default a line feed; below 0: none
  /// Error(Usage) for numbers out of range.
  void check() const;
};

/// A tokenised text whose first `prompt` tokens do not count in the loss.
struct QuestionTokens {
  std::vector<int32_t> tokens;
  int64_t prompt = 0;
  std::vector<std::pair<int64_t, int64_t>> between{};  ///< ranges [begin, end) behind the prompt that do not count either, in order
};

/// Images with one text each. The Loader adds the texts of a batch as "tokens", int64 [batch, tokens], padded to the longest text of the
/// batch, or to longest() if shapes must not change. For questions with answers, "tokens" omits the last token of each text, and "target",
/// int64 [batch, tokens], has the token after each position, or -100 if that is not part of the answer.
class CaptionedImages : public ImageDataset {
 public:
  /// Returns the tokens of the text: at least one; at least two with answers. Called from several threads at once.
  virtual std::vector<int64_t> caption(int64_t index) const = 0;
  /// Returns the number of tokens before the answer, at least 1; 0 for captions.
  virtual int64_t prompt(int64_t /*index*/) const { return 0; }
  /// Returns the image tokens of the texts; nullopt for captions.
  virtual std::optional<QuestionOptions> questions() const { return std::nullopt; }
  virtual int64_t padding() const = 0;  ///< padding id
  virtual int64_t longest() const = 0;  ///< tokens of the longest possible text
};

/// Pairs from a file with one JSON object per line, {"image": "a.jpg", "text": "..."}: the path of an image file in `root`,
/// and a text, or "tokens" instead, as in LabelledTexts. An image may have several lines. With `questions` a line is {"image": "a.jpg",
/// "question": "...", "answer": "..."}; either may be a list of ids. The text is then begin_token, image_tokens copies of image_token,
/// question, separator, answer, end_token. Only the answer may be truncated.
class ImageText final : public CaptionedImages {
 public:
  /// Error(Data) with file and line for a line that is not such an object, for a path that leads out of `root` or does not name an image,
  /// for a missing image and for a bad text; with skip_bad, the last two are omitted and counted. Error(Data) if no pair remains.
  ImageText(const std::string& root, const std::vector<std::string>& files, const DocumentRules& rules,
            const std::optional<QuestionOptions>& questions = std::nullopt);

  int64_t size() const override { return size_; }
  LabelledImage image(int64_t index) const override;
  std::vector<int64_t> caption(int64_t index) const override;
  int64_t prompt(int64_t index) const override;
  std::optional<QuestionOptions> questions() const override { return questions_; }
  DatasetInfo info() const override;
  std::string where(int64_t index) const override;
  int64_t padding() const override { return rules_.pad_token; }
  int64_t longest() const override { return rules_.context; }
  const DocumentCounts& counts() const { return counts_; }
  int64_t missing_images() const { return missing_; }
  /// Returns the paths in `root` of all images named in the files, sorted.
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
  std::string val;                    ///< file of the validation pairs; empty: val_fraction
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

/// Adds the keys of QuestionOptions to a table.
template <class T>
ConfigTable<T> question_fields(ConfigTable<T> table) {
  const auto token = between(0, (1 << 24) - 1);
  // Explicit type arguments: a member of a base class would not be deduced as a member of T.
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
