// The parts of a tokenizer, whatever file it was read from.
#pragma once

#include <memory>

#include "text/added_tokens.hpp"
#include "text/token_model.hpp"
#include "text/tokenizer_steps.hpp"

namespace npu_train::detail {

struct TokenizerParts {
  std::unique_ptr<Normalizer> normalizer;       ///< may be nullptr
  std::unique_ptr<PreTokenizer> pre_tokenizer;  ///< may be nullptr
  std::unique_ptr<TokenModel> model;
  AddedTokens added;
  TokenTemplate around;                   ///< empty: no tokens are added
  std::unique_ptr<TokenDecoder> decoder;  ///< may be nullptr
};

}  // namespace npu_train::detail
