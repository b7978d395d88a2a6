// The functions of regex.hpp that need no PCRE2 themselves: a library without tokenizers has them, too.
#include "npu_train/core/error.hpp"
#include "text/json_fields.hpp"
#include "text/regex.hpp"

namespace npu_train::detail {

Regex read_pattern(const Json& json, const std::string& where) {
  JsonFields fields(json, where);
  const auto text = fields.optional_text("String"), regex = fields.optional_text("Regex");
  fields.finish();
  check(text.has_value() != regex.has_value(), ErrorKind::Data, "tokenizer", where, ": allowed: either a String or a Regex");
  return Regex(text ? quoted_pattern(*text) : pcre_pattern(*regex, where), where);
}

void check_text_size(size_t bytes) {
  check(bytes <= kLargestText, ErrorKind::Data, "tokenizer", "a step of the tokenizer makes a text of more than ", kLargestText,
        " bytes; hint: give the text in parts");
}

std::string replaced(std::string_view text, const Regex& pattern, std::string_view content) {
  std::string out;
  Matches matches(pattern, text);
  size_t at = 0;
  for (Span match; matches.next(match); at = match.end) {
    out.append(text.substr(at, match.begin - at)).append(content);
    check_text_size(out.size());
  }
  return out.append(text.substr(at));
}

}  // namespace npu_train::detail
