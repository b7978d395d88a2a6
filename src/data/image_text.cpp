#include "npu_train/data/image_text.hpp"

#include <algorithm>
#include <filesystem>

#include "data/document_rules.hpp"
#include "data/image_file.hpp"
#include "data/json_lines.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;

constexpr const char *kImageText = "image_text", *kImageQuestions = "image_questions";

}  // namespace

struct ImageText::Pairs {
  struct Pair {
    std::string image;
    int32_t file, count, prompt;  // count: tokens of the text; prompt: tokens before the answer
    int64_t line, first;          // number of the line, from 1; index of the first token
  };
  std::vector<std::string> files;
  std::vector<Pair> pairs;
  std::vector<int32_t> tokens;
};

ImageText::ImageText(const std::string& root, const std::vector<std::string>& files, const DocumentRules& rules,
                     const std::optional<QuestionOptions>& questions)
    : root_(root), rules_(rules), questions_(questions) {
  detail::check_rules_of_lines(rules_);
  if (questions_) questions_->check();
  const auto text_of = [&](const Json& line, const std::string& where) -> std::optional<QuestionTokens> {
    if (questions_) return detail::question_of_line(line, where, rules_, *questions_, counts_);
    return detail::tokens_of_line(line, where, rules_, /*prompts=*/false, counts_);
  };
  auto pairs = std::make_shared<Pairs>();
  pairs->files = files;
  for (size_t f = 0; f < files.size(); ++f)
    for_each_json_line(files[f], [&](const Json& line, int64_t number, const std::string& where) {
      const auto& name = line.at("image", where).text(where + ": image");
      const auto path = detail::path_of_listed_image(root_, name, where, kImageText);
      std::error_code unreadable;
      if (!fs::is_regular_file(path, unreadable)) {
        check(rules_.skip_bad, ErrorKind::Data, kImageText, where, ": there is no file ", path.string(),
              "; hint: data.on_bad_sample=skip omits such pairs and counts them");
        ++missing_;
        return;
      }
      const auto text = text_of(line, where);
      if (!text) return;
      pairs->pairs.push_back({name, static_cast<int32_t>(f), static_cast<int32_t>(text->tokens.size()), static_cast<int32_t>(text->prompt),
                              number, static_cast<int64_t>(pairs->tokens.size())});
      pairs->tokens.insert(pairs->tokens.end(), text->tokens.begin(), text->tokens.end());
    });
  size_ = static_cast<int64_t>(pairs->pairs.size());
  check(size_ > 0, ErrorKind::Data, kImageText, files.empty() ? std::string("no files") : files.front(), ": no pair of image and text");
  pairs_ = std::move(pairs);
}

LabelledImage ImageText::image(int64_t index) const {
  check(index >= 0 && index < size_, ErrorKind::Usage, kImageText, "pair ", index, " of ", size_);
  const auto& pair = pairs_->pairs[static_cast<size_t>(first_ + index)];
  return {{}, detail::read_image_file(detail::path_of_listed_image(root_, pair.image, where(index), kImageText), kImageText), 0};
}

std::vector<int64_t> ImageText::caption(int64_t index) const {
  check(index >= 0 && index < size_, ErrorKind::Usage, kImageText, "pair ", index, " of ", size_);
  const auto& pair = pairs_->pairs[static_cast<size_t>(first_ + index)];
  const auto begin = pairs_->tokens.begin() + pair.first;
  return {begin, begin + pair.count};
}

int64_t ImageText::prompt(int64_t index) const {
  check(index >= 0 && index < size_, ErrorKind::Usage, kImageText, "pair ", index, " of ", size_);
  return pairs_->pairs[static_cast<size_t>(first_ + index)].prompt;
}

DatasetInfo ImageText::info() const {
  DatasetInfo out;
  out.name = questions_ ? kImageQuestions : kImageText;
  out.shape = {3, -1, -1};
  out.mean = {0.48145466, 0.4578275, 0.40821073};  // statistics of OpenAI's CLIP
  out.std = {0.26862954, 0.26130258, 0.27577711};
  return out;
}

std::string ImageText::where(int64_t index) const {
  const auto& pair = pairs_->pairs[static_cast<size_t>(first_ + index)];
  return pairs_->files[static_cast<size_t>(pair.file)] + ", line " + std::to_string(pair.line) + " (" + pair.image + ")";
}

std::vector<std::string> ImageText::images() const {
  std::vector<std::string> out;
  for (int64_t i = first_; i < first_ + size_; ++i)
    out.push_back(fs::path(pairs_->pairs[static_cast<size_t>(i)].image).lexically_normal().string());
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::shared_ptr<ImageText> ImageText::part(int64_t first, int64_t count) const {
  check(first >= 0 && count >= 0 && first <= size_ - count, ErrorKind::Usage, kImageText, "pairs ", first, " to ", first + count, " of ",
        size_);
  auto out = std::make_shared<ImageText>(*this);
  out->first_ += first;
  out->size_ = count;
  return out;
}

}  // namespace npu_train
