// Normalizers of tokenizer.json: what happens to a text before it is divided.
#pragma once

#include <memory>
#include <string>

#include "npu_train/io/json.hpp"

namespace npu_train::detail {

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

}  // namespace npu_train::detail
