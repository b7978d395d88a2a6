/// Converts texts to token ids and back, with the tokenizers of Hugging Face (tokenizer.json) and of SentencePiece (tokenizer.model).
///
///   const auto tokenizer = npu_train::Tokenizer::load("llama-3");        // a folder with tokenizer.json, or the file
///   const auto ids = tokenizer.encode("The old dog").ids;
///   std::cout << tokenizer.decode(ids);
///
/// Supported are BPE, WordPiece, WordLevel and Unigram with the normalizers, pre-tokenizers, post-processors and decoders of GPT-2, Llama,
/// Qwen2, BERT, RoBERTa and their relatives; docs/language.md lists them. Ids and texts equal those of the Python packages tokenizers and
/// sentencepiece. If a file has anything that this class does not support, an error names the place in the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace npu_train {

struct TokenIds {
  std::vector<int64_t> ids;
  std::vector<int64_t> types;  ///< for each id, the text to which it belongs: 0 or 1 ("token_type_ids")
};

/// Returns the file of the tokenizer in a folder: `tokenizer.json`, or else `tokenizer.model` or `spiece.model`; nullopt if there is none.
std::optional<std::filesystem::path> tokenizer_file(const std::filesystem::path& folder);

/// Const functions may be called from several threads.
class Tokenizer {
 public:
  /// Reads a file, or tokenizer_file() of a folder. A file with ".model" in its name is a SentencePiece model; the tokenizer_config.json,
  /// added_tokens.json and config.json next to it determine which tokens surround a text. Error(Data), with the place, for a file that is
  /// missing, larger than 256 MiB or damaged, or has anything that is not supported; Error(Device) if npu_train was built without
  /// NPU_TRAIN_TEXT.
  static Tokenizer load(const std::filesystem::path& path);
  /// Reads the content of a tokenizer.json; `source` is its name in errors.
  static Tokenizer parse(std::string_view json, const std::string& source);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Returns the ids of a UTF-8 text. If `special_tokens`, they include the special tokens that the file's post_processor adds around the
  /// text. Wherever the text contains the content of a special token, the ids contain that token. Error(Data) if the text is not UTF-8.
  TokenIds encode(std::string_view text, bool special_tokens = true) const;
  /// Returns the ids of two texts, as for a sentence and its translation.
  TokenIds encode_pair(std::string_view first, std::string_view second, bool special_tokens = true) const;

  /// Returns the UTF-8 text of the ids; bytes of incomplete characters become U+FFFD. An id without a token adds no text: a model may have
  /// more logits than its tokenizer has tokens.
  std::string decode(const std::vector<int64_t>& ids, bool skip_special_tokens = true) const;

  /// Returns the token of an id, as written in the file ("Ġdog"); nullopt if the id has no token.
  std::optional<std::string> token(int64_t id) const;
  /// Returns the id of `token`, written as in the file; nullopt if there is no such token.
  std::optional<int64_t> id(std::string_view token) const;
  bool is_special(int64_t id) const;
  /// Returns the largest id + 1.
  int64_t vocabulary_size() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Converts a stream of tokens to text, piece by piece. Each piece consists of complete characters.
class TextStream {
 public:
  using Decode = std::function<std::string(const std::vector<int64_t>& ids)>;
  /// `decode` returns the text of ids, with U+FFFD for the bytes of incomplete characters, as Tokenizer::decode() does.
  explicit TextStream(Decode decode) : decode_(std::move(decode)) {}

  /// Returns the text that this token completes; it may be empty.
  std::string next(int64_t id);
  /// Returns the text that next() has held back.
  std::string rest();

 private:
  std::string behind_returned() const;

  Decode decode_;
  std::vector<int64_t> ids_;  // the last ids: first those whose non-empty text was returned, then those whose text is held back
  size_t returned_ = 0;       // number of ids in ids_ whose text was returned
};

}  // namespace npu_train
