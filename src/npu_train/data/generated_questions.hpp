/// Questions about images, and captions, that need no download: the shapes of generated.hpp with texts about them, as bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/data/datasets.hpp"
#include "npu_train/data/generated.hpp"
#include "npu_train/data/image_text.hpp"

namespace npu_train {

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

}  // namespace npu_train
