// Decoders of tokenizer.json: how the texts of tokens become the text again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "npu_train/io/json.hpp"

namespace npu_train::detail {

class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  /// Returns the texts to join.
  virtual std::vector<std::string> decoded(std::vector<std::string> tokens) const = 0;
};

/// Error(Data) with the name `where` for a type that is not supported.
std::unique_ptr<TokenDecoder> read_decoder(const Json& json, const std::string& where);

}  // namespace npu_train::detail
