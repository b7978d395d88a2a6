#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "data/document_rules.hpp"
#include "data/json_lines.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/documents.hpp"

namespace npu_train::detail {
namespace {

// Without a limit, a single wrong label would create a head of any size. Data may have fewer samples than classes (a small part of
// ImageNet).
constexpr int64_t kClassesOfFewSamples = 10'000, kClassesPerSample = 10;

// Error(Data) if the largest label, found at `where`, implies far more classes than there are samples.
void check_number_of_classes(int64_t classes, int64_t samples, const std::string& where) {
  check(classes <= kClassesOfFewSamples || classes / kClassesPerSample <= samples, ErrorKind::Data, "data", where, ": the label is ",
        classes - 1, ", so that there would be ", with_commas(classes), " classes, and there are ", with_commas(samples),
        " samples; allowed: ", with_commas(kClassesOfFewSamples), " classes, or ", kClassesPerSample,
        " for each sample; hint: number the classes from 0 without gaps, or use names as labels");
}

}  // namespace
}  // namespace npu_train::detail

namespace npu_train {
namespace {

constexpr const char* kTexts = "documents";
constexpr int64_t kMostClassesOfTexts = int64_t{1} << 24;

// A label as written in the file; not given() if absent.
struct Label {
  std::string name;
  int64_t number = -1;
  bool given() const { return number >= 0 || !name.empty(); }
};

Label label_of_line(const Json& line, const std::string& where) {
  const auto* value = line.find("label");
  if (value == nullptr) return {};
  if (value->is_text()) {
    check(!value->text(where).empty(), ErrorKind::Data, kTexts, where, ": the label is an empty text; allowed: a name, or a number from 0");
    return {.name = value->text(where)};
  }
  const auto number = value->integer(where + ": label");
  check(number >= 0 && number < kMostClassesOfTexts, ErrorKind::Data, kTexts, where, ": the label is ", number, "; allowed: 0 to ",
        kMostClassesOfTexts - 1);
  return {.name = {}, .number = number};
}

// Numbers the classes, from the labels of all texts or as in the training data.
class Classes {
 public:
  explicit Classes(const DatasetInfo& known) : known_(known.num_classes > 0), info_(known) {
    for (size_t i = 0; i < known.class_names.size(); ++i) numbers_[known.class_names[i]] = static_cast<int64_t>(i);
  }

  void add(const Label& label, const std::string& where) {
    if (!started_) labelled_ = label.given(), named_ = !label.name.empty();
    started_ = true;
    check(label.given() == labelled_, ErrorKind::Data, kTexts, where, ": the line has ", labelled_ ? "no label" : "a label",
          ", and the lines before it have ", labelled_ ? "one" : "none", "; allowed: labels in all lines, or in none");
    if (!labelled_) return;
    check(named_ == !label.name.empty(), ErrorKind::Data, kTexts, where, ": the label is a ", named_ ? "number" : "text",
          ", and that of the lines before it is not; allowed: one kind");
    if (known_) {
      const bool found = named_ ? numbers_.count(label.name) != 0 : numbers_.empty() && label.number < info_.num_classes;
      check(found, ErrorKind::Data, kTexts, where, ": the label ", named_ ? "'" + label.name + "'" : std::to_string(label.number),
            " does not occur in the training data");
    } else if (named_) {
      numbers_[label.name] = 0;
    } else if (label.number >= info_.num_classes) {
      info_.num_classes = label.number + 1;
      largest_ = where;
    }
  }

  // Call it after all labels have been added.
  DatasetInfo finish(int64_t texts) {
    if (!known_) detail::check_number_of_classes(info_.num_classes, texts, largest_);
    if (known_ || numbers_.empty()) return info_;
    for (auto& [name, number] : numbers_) {
      number = static_cast<int64_t>(info_.class_names.size());
      info_.class_names.push_back(name);
    }
    info_.num_classes = static_cast<int64_t>(numbers_.size());
    return info_;
  }

  int64_t number(const Label& label) const { return named_ ? numbers_.at(label.name) : label.number; }

 private:
  bool known_, started_ = false, labelled_ = false, named_ = false;
  DatasetInfo info_;
  std::string largest_;  // where the largest number was found
  std::map<std::string, int64_t> numbers_;
};

}  // namespace

struct LabelledTexts::Lines {
  std::vector<std::string> files;
  std::vector<Text> texts;
  std::vector<int32_t> tokens;
  std::vector<bool> counted;  // which of the tokens count in the loss
  bool masked = false;        // whether any text has a prompt, or answers
};

namespace {

// Appends, for each token of a text, whether it counts in the loss.
void add_counted(const QuestionTokens& text, std::vector<bool>& counted) {
  const auto first = counted.size();
  counted.resize(first + text.tokens.size(), true);
  const auto ignore = [&](int64_t begin, int64_t end) {
    std::fill(counted.begin() + static_cast<std::ptrdiff_t>(first) + begin, counted.begin() + static_cast<std::ptrdiff_t>(first) + end,
              false);
  };
  ignore(0, text.prompt);
  for (const auto& [begin, end] : text.between) ignore(begin, end);
}

}  // namespace

LabelledTexts::LabelledTexts(const std::vector<std::string>& files, const DocumentRules& rules, const DatasetInfo& known) : rules_(rules) {
  detail::check_rules_of_lines(rules_);
  auto lines = std::make_shared<Lines>();
  lines->files = files;
  Classes classes(known);
  std::vector<Label> labels;
  for (size_t f = 0; f < files.size(); ++f)
    for_each_json_line(files[f], [&](const Json& line, int64_t number, const std::string& where) {
      const auto label = label_of_line(line, where);
      classes.add(label, where);
      const auto text = detail::tokens_of_line(line, where, rules_, /*prompts=*/true, counts_);
      if (!text) return;
      const auto& tokens = text->tokens;
      lines->texts.push_back(
          {static_cast<int32_t>(f), static_cast<int32_t>(tokens.size()), number, static_cast<int64_t>(lines->tokens.size()), -1});
      lines->tokens.insert(lines->tokens.end(), tokens.begin(), tokens.end());
      add_counted(*text, lines->counted);
      lines->masked = lines->masked || line.find("prompt") != nullptr || line.find("messages") != nullptr;
      labels.push_back(label);
    });
  info_ = classes.finish(static_cast<int64_t>(labels.size()));
  info_.name = "documents";
  for (size_t i = 0; i < labels.size(); ++i)
    if (labels[i].given()) lines->texts[i].label = classes.number(labels[i]);
  size_ = static_cast<int64_t>(lines->texts.size());
  const auto omitted = counts_.str(rules_.context);
  check(size_ > 0, ErrorKind::Data, kTexts,
        files.empty() ? "no files" : files.front() + (omitted.empty() ? ": there are no lines" : ": no text remains; " + omitted));
  lines_ = std::move(lines);
}

Sample LabelledTexts::get(int64_t index) const {
  check(index >= 0 && index < size_, ErrorKind::Usage, kTexts, "sample ", index, " of ", size_);
  const auto& text = lines_->texts[static_cast<size_t>(first_ + index)];
  at::Tensor tokens = at::empty({text.count}, at::kLong);
  std::copy_n(lines_->tokens.data() + text.first, text.count, tokens.mutable_data_ptr<int64_t>());
  Sample out{{{"input", std::move(tokens)}}, index};
  if (lines_->masked) {
    at::Tensor mask = at::empty({text.count}, at::kLong);
    std::copy_n(lines_->counted.begin() + text.first, text.count, mask.mutable_data_ptr<int64_t>());
    out.fields.emplace_back("loss_mask", std::move(mask));
  }
  if (text.label >= 0) out.fields.emplace_back("target", at::scalar_tensor(text.label, at::kLong));
  return out;
}

int64_t LabelledTexts::tokens(int64_t index) const { return lines_->texts.at(static_cast<size_t>(first_ + index)).count; }

int64_t LabelledTexts::label(int64_t index) const { return lines_->texts.at(static_cast<size_t>(first_ + index)).label; }

std::string LabelledTexts::where(int64_t index) const {
  const auto& text = lines_->texts[static_cast<size_t>(first_ + index)];
  return lines_->files[static_cast<size_t>(text.file)] + ", line " + std::to_string(text.line);
}

std::shared_ptr<LabelledTexts> LabelledTexts::part(int64_t first, int64_t count) const {
  check(first >= 0 && count >= 0 && first <= size_ - count, ErrorKind::Usage, kTexts, "samples ", first, " to ", first + count, " of ",
        size_);
  auto out = std::make_shared<LabelledTexts>(*this);
  out->first_ += first;
  out->size_ = count;
  return out;
}

}  // namespace npu_train
