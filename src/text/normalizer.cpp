#include "text/tokenizer_steps.hpp"

#include <utility>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/text/utf8.hpp"
#include "text/byte_characters.hpp"
#include "text/json_fields.hpp"
#include "text/regex.hpp"
#include "text/unicode.hpp"

namespace npu_train::detail {
namespace {

class FormNormalizer final : public Normalizer {
 public:
  explicit FormNormalizer(NormalForm form) : form_(form) {}
  std::string normalized(std::string text) const override { return normal_form(text, form_); }

 private:
  NormalForm form_;
};

// A normalizer that replaces each character on its own.
template <class Append>
class CharacterNormalizer final : public Normalizer {
 public:
  explicit CharacterNormalizer(Append append) : append_(std::move(append)) {}
  std::string normalized(std::string text) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) append_(out, next_point(text, at));
    return out;
  }

 private:
  Append append_;
};

template <class Append>
std::unique_ptr<Normalizer> by_character(Append append) {
  return std::make_unique<CharacterNormalizer<Append>>(std::move(append));
}

class ReplacingNormalizer final : public Normalizer {
 public:
  ReplacingNormalizer(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string normalized(std::string text) const override { return replaced(text, pattern_, content_); }

 private:
  Regex pattern_;
  std::string content_;
};

class PrependingNormalizer final : public Normalizer {
 public:
  explicit PrependingNormalizer(std::string text) : prefix_(std::move(text)) {}
  std::string normalized(std::string text) const override { return text.empty() ? text : prefix_ + text; }

 private:
  std::string prefix_;
};

class ByteNormalizer final : public Normalizer {
 public:
  std::string normalized(std::string text) const override { return characters_of_bytes(text); }
};

class StrippingNormalizer final : public Normalizer {
 public:
  StrippingNormalizer(bool left, bool right) : left_(left), right_(right) {}
  std::string normalized(std::string text) const override {
    size_t begin = 0, end = 0;  // range from the first to the last character that is not white space
    bool found = false;
    for (size_t at = 0; at < text.size();) {
      const size_t first = at;
      if (is_white_space(next_point(text, at))) continue;
      if (!found) begin = first;
      found = true;
      end = at;
    }
    if (!found) return "";
    if (right_) text.resize(end);
    return left_ ? text.substr(begin) : text;
  }

 private:
  bool left_, right_;
};

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}
  std::string normalized(std::string text) const override {
    for (const auto& step : steps_) {
      text = step->normalized(std::move(text));
      check_text_size(text.size());
    }
    return text;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

std::unique_ptr<Normalizer> read_normalizers(JsonFields& fields) {
  std::vector<std::unique_ptr<Normalizer>> steps;
  const auto& list = read_steps(fields, "normalizers");
  for (size_t i = 0; i < list.size(); ++i) steps.push_back(read_normalizer(list[i], str_cat(fields.where("normalizers"), "[", i, "]")));
  return std::make_unique<NormalizerSequence>(std::move(steps));
}

std::unique_ptr<Normalizer> normalizer_of(const std::string& type, JsonFields& fields) {
  if (type == "NFC") return std::make_unique<FormNormalizer>(NormalForm::Nfc);
  if (type == "NFD") return std::make_unique<FormNormalizer>(NormalForm::Nfd);
  if (type == "NFKC") return std::make_unique<FormNormalizer>(NormalForm::Nfkc);
  if (type == "NFKD") return std::make_unique<FormNormalizer>(NormalForm::Nfkd);
  if (type == "Lowercase") return by_character([](std::string& out, char32_t c) { append_lower(out, c); });
  if (type == "StripAccents")
    return by_character([](std::string& out, char32_t c) {
      if (!is_mark(c)) append_point(out, c);
    });
  if (type == "ByteLevel") return std::make_unique<ByteNormalizer>();
  if (type == "Prepend") return std::make_unique<PrependingNormalizer>(fields.text("prepend"));
  if (type == "Strip") {
    const bool left = fields.flag("strip_left");
    return std::make_unique<StrippingNormalizer>(left, fields.flag("strip_right"));
  }
  if (type == "Replace") {
    auto pattern = read_pattern(fields.at("pattern"), fields.where("pattern"));
    return std::make_unique<ReplacingNormalizer>(std::move(pattern), fields.text("content"));
  }
  if (type == "Sequence") return read_normalizers(fields);
  refuse_type(fields.where(), type,
              "BertNormalizer, ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Precompiled, Prepend, Replace, Sequence, Strip, StripAccents");
}

}  // namespace

std::unique_ptr<Normalizer> read_normalizer(const Json& json, const std::string& where) {
  JsonFields fields(json, where);
  const auto type = fields.text("type");
  if (type == "BertNormalizer") return read_bert_normalizer(json, where);
  if (type == "Precompiled") return read_precompiled_normalizer(json, where);
  auto out = normalizer_of(type, fields);
  fields.finish();
  return out;
}

}  // namespace npu_train::detail
