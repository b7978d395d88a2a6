#include "text/tokenizer_steps.hpp"

#include <utility>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/text/utf8.hpp"
#include "text/byte_characters.hpp"
#include "text/json_fields.hpp"
#include "text/regex.hpp"
#include "text/split.hpp"
#include "text/unicode.hpp"

namespace npu_train::detail {
namespace {

constexpr const char* kGpt2Words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

using Steps = std::vector<std::unique_ptr<PreTokenizer>>;

class PreTokenizerSequence final : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(Steps steps) : steps_(std::move(steps)) {}
  void split(TextPart part, const TextPartSink& sink) const override { run(0, part, sink); }

 private:
  void run(size_t step, TextPart part, const TextPartSink& sink) const {
    if (step == steps_.size()) return sink(part);
    if (part.text.empty()) return;
    steps_[step]->split(part, [&](TextPart next) { run(step + 1, next, sink); });
  }
  Steps steps_;
};

class ByPattern final : public PreTokenizer {
 public:
  ByPattern(Regex pattern, bool invert, Delimiters delimiters) : pattern_(std::move(pattern)), invert_(invert), delimiters_(delimiters) {}
  void split(TextPart part, const TextPartSink& sink) const override { split_at(part, pattern_, invert_, delimiters_, sink); }

 private:
  Regex pattern_;
  bool invert_;
  Delimiters delimiters_;
};

// Divides at characters for which a function is true.
template <class IsDelimiter>
class ByCharacter final : public PreTokenizer {
 public:
  ByCharacter(IsDelimiter is_delimiter, Delimiters delimiters) : is_delimiter_(std::move(is_delimiter)), delimiters_(delimiters) {}
  void split(TextPart part, const TextPartSink& sink) const override {
    Splitter out(part, delimiters_, sink);
    size_t word = 0;
    for (size_t at = 0; at < part.text.size();) {
      const size_t begin = at;
      if (!is_delimiter_(next_point(part.text, at))) continue;
      if (begin > word) out.add(begin, false);
      out.add(at, true);
      word = at;
    }
    if (word < part.text.size()) out.add(part.text.size(), false);
    out.finish();
  }

 private:
  IsDelimiter is_delimiter_;
  Delimiters delimiters_;
};

template <class IsDelimiter>
std::unique_ptr<PreTokenizer> at_characters(IsDelimiter is_delimiter, Delimiters delimiters) {
  return std::make_unique<ByCharacter<IsDelimiter>>(std::move(is_delimiter), delimiters);
}

class ByteWords final : public PreTokenizer {
 public:
  explicit ByteWords(JsonFields& fields) {
    prefix_space_ = fields.flag("add_prefix_space");
    fields.unused("trim_offsets");
    if (fields.flag("use_regex", true)) words_.push_back(read_words());
  }
  void split(TextPart part, const TextPartSink& sink) const override {
    std::string spaced, characters;
    if (prefix_space_ && !part.text.starts_with(' ')) {
      spaced = " " + std::string(part.text);
      part.text = spaced;
    }
    const auto pass = [&](TextPart word) {
      characters.clear();
      append_byte_characters(word.text, characters);
      check_text_size(characters.size());
      sink({characters, word.first});
    };
    if (words_.empty()) return pass(part);
    split_at(part, words_.front(), false, Delimiters::Isolated, pass);
  }

 private:
  static Regex read_words() { return Regex(pcre_pattern(kGpt2Words, "ByteLevel"), "ByteLevel"); }
  bool prefix_space_ = false;
  std::vector<Regex> words_;  // empty, or one pattern
};

class SpaceWords final : public PreTokenizer {
 public:
  explicit SpaceWords(JsonFields& fields) {
    append_point(space_, fields.character("replacement"));
    fields.unused("str_rep");
    scheme_ = fields.optional_text("prepend_scheme").value_or("always");
    check(scheme_ == "always" || scheme_ == "first" || scheme_ == "never", ErrorKind::Data, "tokenizer", fields.where("prepend_scheme"),
          " is '", visible_start(scheme_, 40), "'; allowed: always, first, never");
    const bool given = fields.find("add_prefix_space") != nullptr;
    if (given && !fields.flag("add_prefix_space")) {
      check(scheme_ == "never" || fields.find("prepend_scheme") == nullptr, ErrorKind::Data, "tokenizer", fields.where("add_prefix_space"),
            " is false, and prepend_scheme is ", scheme_);
      scheme_ = "never";
    }
    words_ = fields.flag("split", true);
  }

  void split(TextPart part, const TextPartSink& sink) const override {
    std::string text;
    for (const char c : part.text) c == ' ' ? text += space_ : text += c;
    if (!text.starts_with(space_) && (scheme_ == "always" || (scheme_ == "first" && part.first))) text.insert(0, space_);
    if (!words_) return sink({text, part.first});
    Splitter out({text, part.first}, Delimiters::MergedWithNext, sink);
    size_t word = 0;
    for (size_t at = text.find(space_); at != std::string::npos; at = text.find(space_, word)) {
      if (at > word) out.add(at, false);
      word = at + space_.size();
      out.add(word, true);
    }
    if (word < text.size()) out.add(text.size(), false);
    out.finish();
  }

 private:
  std::string space_, scheme_;
  bool words_ = true;
};

std::unique_ptr<PreTokenizer> read_pre_tokenizers(JsonFields& fields) {
  Steps steps;
  const auto& list = read_steps(fields, "pretokenizers");
  for (size_t i = 0; i < list.size(); ++i)
    steps.push_back(read_pre_tokenizer(list[i], str_cat(fields.where("pretokenizers"), "[", i, "]")));
  return std::make_unique<PreTokenizerSequence>(std::move(steps));
}

std::unique_ptr<PreTokenizer> read_bert_words() {
  Steps steps;
  steps.push_back(at_characters(is_white_space, Delimiters::Removed));
  steps.push_back(at_characters(is_punctuation, Delimiters::Isolated));
  return std::make_unique<PreTokenizerSequence>(std::move(steps));
}

std::unique_ptr<PreTokenizer> pre_tokenizer_of(const std::string& type, JsonFields& fields) {
  const auto delimiters = [&](const std::string& name) { return read_delimiters(name, fields.where("behavior")); };
  if (type == "ByteLevel") return std::make_unique<ByteWords>(fields);
  if (type == "Metaspace") return std::make_unique<SpaceWords>(fields);
  if (type == "Sequence") return read_pre_tokenizers(fields);
  if (type == "BertPreTokenizer") return read_bert_words();
  if (type == "WhitespaceSplit") return at_characters(is_white_space, Delimiters::Removed);
  if (type == "Punctuation") return at_characters(is_punctuation, delimiters(fields.optional_text("behavior").value_or("Isolated")));
  if (type == "Digits") return at_characters(is_number, fields.flag("individual_digits") ? Delimiters::Isolated : Delimiters::Contiguous);
  if (type == "CharDelimiterSplit") {
    const auto delimiter = fields.character("delimiter");
    return at_characters([delimiter](char32_t c) { return c == delimiter; }, Delimiters::Removed);
  }
  if (type == "Whitespace") {
    const std::string word = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}";
    return std::make_unique<ByPattern>(Regex("[" + word + "]+|[^" + word + "\\p{White_Space}]+", fields.where()), true,
                                       Delimiters::Removed);
  }
  if (type == "Split") {
    auto pattern = read_pattern(fields.at("pattern"), fields.where("pattern"));
    const bool invert = fields.flag("invert");
    return std::make_unique<ByPattern>(std::move(pattern), invert, delimiters(fields.text("behavior")));
  }
  refuse_type(
      fields.where(), type,
      "BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, Metaspace, Punctuation, Sequence, Split, Whitespace, WhitespaceSplit");
}

}  // namespace

std::unique_ptr<PreTokenizer> read_pre_tokenizer(const Json& json, const std::string& where) {
  JsonFields fields(json, where);
  auto out = pre_tokenizer_of(fields.text("type"), fields);
  fields.finish();
  return out;
}

}  // namespace npu_train::detail
