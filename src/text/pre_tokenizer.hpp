// Pre-tokenizers of tokenizer.json: how a text is divided into the words that a model divides further.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "npu_train/io/json.hpp"

namespace npu_train::detail {

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

}  // namespace npu_train::detail
