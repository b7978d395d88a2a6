// Converts the text of a language model to tokens and back, and prints it while it is generated.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/nn/model.hpp"
#include "npu_train/text/chat_template.hpp"
#include "npu_train/text/tokenizer.hpp"

namespace npu_train::cli {

/// Converts texts to tokens and back. Without `encode`, the texts of the model's tokens are unknown.
struct TextCodec {
  std::function<std::vector<int64_t>(const std::string& text, bool special_tokens)> encode{};
  TextStream::Decode decode{};
  TextSettings settings{};
};

/// Returns the codec of `tokenizer` (a file or folder) or, if it is "", of the tokenizer in the folder of the weights. Without a tokenizer,
/// a model with a vocabulary of bytes gets the codec of bytes; the texts of other models are unknown. Error(Data) if the tokenizer has more
/// tokens than the model. If texts are not `needed`, and the tokenizer in the folder of the weights cannot be read, logs a warning; the
/// texts are then unknown.
TextCodec text_codec(const Model& model, const std::string& tokenizer, const std::string& weights, bool needed);

/// A text that is being generated. It ends before the first stop text. A part is printed as soon as it cannot be the beginning of a stop
/// text.
class GeneratedText {
 public:
  GeneratedText(TextStream::Decode decode, std::vector<std::string> stops, bool print);

  /// Adds a token. Returns false if the text has ended.
  bool add(int64_t token);
  /// Prints the rest, which was held back, and returns the text.
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
