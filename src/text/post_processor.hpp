// Post-processors of tokenizer.json: the special tokens around a text, or around two.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/io/json.hpp"
#include "text/added_tokens.hpp"
#include "text/vocabulary.hpp"

namespace npu_train::detail {

/// A part of the result: tokens of the template, or a text.
struct TemplatePart {
  std::vector<int32_t> ids;  ///< empty: the text
  bool second = false;       ///< the second text
  int32_t type = 0;
};

struct TokenTemplate {
  std::vector<TemplatePart> single, pair;
};

/// Returns the template of a post-processor; nullopt-like empty lists stand for the texts without special tokens. Error(Data) with the name
/// `where` for a type that is not supported, and for a special token that is not a token with that id.
TokenTemplate read_post_processor(const Json& json, const std::string& where, const Vocabulary& vocabulary, const AddedTokens& added);

}  // namespace npu_train::detail
