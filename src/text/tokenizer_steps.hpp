// The steps of tokenizer.json around the model of tokens: normalizers, pre-tokenizers, post-processors and decoders.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "npu_train/io/json.hpp"

namespace npu_train::detail {

class AddedTokens;
class Vocabulary;

// Normalizers of tokenizer.json: what happens to a text before it is divided.

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string normalized(std::string text) const = 0;
};

/// Error(Data) with the name `where` for a type that is not supported.
std::unique_ptr<Normalizer> read_normalizer(const Json& json, const std::string& where);

/// SentencePiece's replacements of characters, as the package tokenizers applies them.
std::unique_ptr<Normalizer> read_precompiled_normalizer(const Json& json, const std::string& where);

/// BERT's cleaning, spaces around Chinese characters, removal of accents and lower case.
std::unique_ptr<Normalizer> read_bert_normalizer(const Json& json, const std::string& where);

// Pre-tokenizers of tokenizer.json: how a text is divided into the words that a model divides further.

struct TextPart {
  std::string_view text;
  bool first = false;  ///< it begins where the complete text begins
};

using TextPartSink = std::function<void(TextPart)>;

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Passes on the words of a part in order. Their text may end with the call of the sink. Words may be empty.
  virtual void split(TextPart part, const TextPartSink& sink) const = 0;
};

/// Error(Data) with the name `where` for a type that is not supported.
std::unique_ptr<PreTokenizer> read_pre_tokenizer(const Json& json, const std::string& where);

// Post-processors of tokenizer.json: the special tokens around a text, or around two.

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

// Decoders of tokenizer.json: how the texts of tokens become the text again.

class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  /// Returns the texts to join.
  virtual std::vector<std::string> decoded(std::vector<std::string> tokens) const = 0;
};

/// Error(Data) with the name `where` for a type that is not supported.
std::unique_ptr<TokenDecoder> read_decoder(const Json& json, const std::string& where);

}  // namespace npu_train::detail
