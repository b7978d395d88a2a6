// The steps of tokenizer.json before and after the token model: normalizers, pre-tokenizers, post-processors and decoders.
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

// Normalizers of tokenizer.json, which change a text before it is divided.

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string normalized(std::string text) const = 0;
};

/// Error(Data) with the name `where` for a type that is not supported.
std::unique_ptr<Normalizer> read_normalizer(const Json& json, const std::string& where);

/// Reads a normalizer that applies SentencePiece's character replacements in the same way as the package tokenizers.
std::unique_ptr<Normalizer> read_precompiled_normalizer(const Json& json, const std::string& where);

/// Reads BERT's normalizer: cleaning, spaces around Chinese characters, removal of accents, and lower case.
std::unique_ptr<Normalizer> read_bert_normalizer(const Json& json, const std::string& where);

// Pre-tokenizers of tokenizer.json, which divide a text into words; a model divides the words further.

struct TextPart {
  std::string_view text;
  bool first = false;  ///< the part begins where the complete text begins
};

using TextPartSink = std::function<void(TextPart)>;

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Passes the words of a part to the sink in order. The text of a word may be valid only during the call of the sink. Words may be empty.
  virtual void split(TextPart part, const TextPartSink& sink) const = 0;
};

/// Error(Data) with the name `where` for a type that is not supported.
std::unique_ptr<PreTokenizer> read_pre_tokenizer(const Json& json, const std::string& where);

// Post-processors of tokenizer.json, which add special tokens around one text or two texts.

/// A part of the result: tokens of the template, or a text.
struct TemplatePart {
  std::vector<int32_t> ids;  ///< tokens of the template; empty: this part is a text
  bool second = false;       ///< this part is the second text
  int32_t type = 0;
};

struct TokenTemplate {
  std::vector<TemplatePart> single, pair;
};

/// Returns the template of a post-processor; `single` and `pair` are empty for a type that adds no special tokens. Error(Data) with the
/// name `where` for a type that is not supported, and for a special token that does not have the given id.
TokenTemplate read_post_processor(const Json& json, const std::string& where, const Vocabulary& vocabulary, const AddedTokens& added);

// Decoders of tokenizer.json, which convert the texts of tokens to the original text.

class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  /// Returns texts that the caller joins.
  virtual std::vector<std::string> decoded(std::vector<std::string> tokens) const = 0;
};

/// Error(Data) with the name `where` for a type that is not supported.
std::unique_ptr<TokenDecoder> read_decoder(const Json& json, const std::string& where);

}  // namespace npu_train::detail
