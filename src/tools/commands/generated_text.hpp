// The text of a language model: its tokens, and what is shown while they are generated.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/nn/model.hpp"
#include "npu_train/text/text_settings.hpp"
#include "npu_train/text/tokenizer.hpp"

namespace npu_train::cli {

/// How texts become tokens, and back. Without `encode`, the model has tokens whose texts are not known.
struct TextCodec {
  std::function<std::vector<int64_t>(const std::string& text, bool special_tokens)> encode{};
  TextStream::Decode decode{};
  TextSettings settings{};
};

/// Returns the codec of a tokenizer: `tokenizer` (a file or folder), or the one in the folder of the weights; of bytes, for a model with
/// that vocabulary. Error(Data) for a tokenizer with more tokens than the model.
TextCodec text_codec(const Model& model, const std::string& tokenizer, const std::string& weights);

/// A text that is generated: it ends before the first of some texts, and is printed as soon as it cannot become one of them.
class GeneratedText {
 public:
  GeneratedText(TextStream::Decode decode, std::vector<std::string> stops, bool print);

  /// Adds a token; false: the text has ended.
  bool add(int64_t token);
  /// Prints what was held back, and returns the text.
  const std::string& finish();

 private:
  bool append(const std::string& more);
  void print(size_t end);
  size_t sure() const;

  TextStream stream_;
  std::vector<std::string> stops_;
  bool print_, ended_ = false;
  std::string text_;
  size_t printed_ = 0;
};

}  // namespace npu_train::cli
