#include <utility>

#include "npu_train/text/utf8.hpp"
#include "text/json_fields.hpp"
#include "text/tokenizer_steps.hpp"
#include "text/unicode.hpp"

namespace npu_train::detail {
namespace {

// Returns whether a character is in a block of CJK ideographs. The blocks are those of the published tokenizers, which omit U+2B820 to
// U+2B91F.
bool is_ideograph(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(JsonFields& fields) {
    clean_ = fields.flag("clean_text");
    ideographs_ = fields.flag("handle_chinese_chars");
    lower_ = fields.flag("lowercase");
    no_accents_ = fields.flag("strip_accents", lower_);
  }

  std::string normalized(std::string text) const override {
    if (clean_ || ideographs_) text = cleaned(text);
    if (no_accents_) text = normal_form(text, NormalForm::Nfd);
    if (!no_accents_ && !lower_) return text;
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const auto c = next_point(text, at);
      if (no_accents_ && is_nonspacing_mark(c)) continue;
      lower_ ? append_lower(out, c) : append_point(out, c);
    }
    return out;
  }

 private:
  std::string cleaned(const std::string& text) const {
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      auto c = next_point(text, at);
      if (clean_) {
        if (is_white_space(c) && c != 0xB && c != 0xC && c != 0x85) {
          c = ' ';
        } else if (c == 0xFFFD || is_control(c)) {
          continue;
        }
      }
      const bool apart = ideographs_ && is_ideograph(c);
      if (apart) out += ' ';
      append_point(out, c);
      if (apart) out += ' ';
    }
    return out;
  }

  bool clean_ = false, ideographs_ = false, lower_ = false, no_accents_ = false;
};

}  // namespace

std::unique_ptr<Normalizer> read_bert_normalizer(const Json& json, const std::string& where) {
  JsonFields fields(json, where);
  fields.unused("type");
  auto out = std::make_unique<BertNormalizer>(fields);
  fields.finish();
  return out;
}

}  // namespace npu_train::detail
