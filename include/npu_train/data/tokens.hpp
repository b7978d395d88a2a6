/// Text as token ids: the file formats of llm.c and nanoGPT, and the byte tokenizer.
///
/// llm.c: a header of 256 int32 (magic 20240520, version 1, number of tokens; the rest unused), then uint16; its files for Llama 3 have the
/// magic 20240801, version 7 and uint32. nanoGPT: uint16 without a header. Everything is little-endian. Files that were written together
/// have in the unused part, from the fourth int32 on, the magic 1885432946 and a 64-bit digest of all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "npu_train/data/data_options.hpp"
#include "npu_train/data/dataset.hpp"
#include "npu_train/data/prefixed.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train {

/// An open token file. Tokens are read on request through the page cache. Any number of threads may read, and files may exceed the memory.
class TokenFile {
 public:
  /// `dtype` (uint16 or uint32) applies to a file without a header. Error(Data) if the file is missing or truncated, its size is not a
  /// multiple of the token size, or it begins like another format: a header of llm.c with another magic, .npy, ZIP, Megatron's index.
  /// Error(Usage) for another dtype.
  explicit TokenFile(const std::string& path, const std::string& dtype = "uint16");

  int64_t size() const { return size_; }  ///< tokens
  const std::string& path() const { return path_; }
  uint64_t written_with() const { return written_with_; }  ///< digest of all files that were written together; 0: written alone
  /// Reads tokens [first, first + count) into `out`. Error(Data) if the file no longer has them.
  void read(int64_t first, int64_t count, int64_t* out) const;

 private:
  std::string path_;
  ReadableFile file_;
  int64_t begin_ = 0, width_ = 2, size_ = 0;  // offset of the first token and size of a token in bytes; number of tokens
  uint64_t written_with_ = 0;
};

/// Writes tokens in llm.c's layout for GPT-2 (uint16), or for Llama 3 (uint32) if a token is above 65535. Error(Usage) for a token below 0
/// or above 2^32 - 1, and for 2^31 tokens or more; Error(Checkpoint) if the file cannot be written.
void save_tokens(const std::string& path, const std::vector<int64_t>& tokens);
/// Like save_tokens() above, with each byte as a token.
void save_tokens(const std::string& path, std::string_view bytes);
/// Writes several files of bytes. The first file appears when the content of all files is on the disk. If the process is killed before the
/// last file appears, the files are from two calls, and their written_with() differ.
void save_tokens(const std::vector<std::pair<std::string, std::string_view>>& files);
/// Does the same with files of tokens, which all have the layout that the largest token needs; errors as for one file.
void save_tokens(const std::vector<std::pair<std::string, std::vector<int64_t>>>& files);

/// Sample i has "input", the `context` tokens from i * context on, and "target", the token after each of them: int64 [context]. Tokens at
/// the end of a file that do not fill a sample are not used; no sample spans two files.
class TokenDataset final : public Dataset {
 public:
  /// A token of at least `vocab_size` (0: not checked) is an Error(Data) of its sample. Error(Data) if there are no files, or a file has
  /// fewer than context + 1 tokens.
  TokenDataset(std::vector<TokenFile> files, int64_t context, int64_t vocab_size = 0);

  int64_t size() const override { return size_; }
  Sample get(int64_t index) const override;
  DatasetInfo info() const override;
  std::string where(int64_t index) const override;
  /// Returns samples [first, first + count) as a data set that shares the files. Error(Usage) if out of range.
  std::shared_ptr<TokenDataset> part(int64_t first, int64_t count) const;

 private:
  struct Place {
    const TokenFile* file;
    int64_t first;  // token
  };
  Place place(int64_t index) const;

  std::shared_ptr<const std::vector<TokenFile>> files_;
  std::vector<int64_t> ends_;  // samples up to and including each file
  int64_t context_, vocab_size_;
  int64_t first_ = 0, size_ = 0;
};

/// Returns the files named by `pattern` in alphabetical order: a file, the .bin files of a folder, or a shell pattern ("data/train_*.bin").
/// Error(Data) if there are none.
std::vector<std::string> token_files(const std::string& pattern);

struct TokensOptions : DataOptions, PrefixOptions {
  std::string train;  ///< training files, as for token_files()
  std::string val;    ///< validation files; empty: val_fraction
  double val_fraction = 0;
  int64_t context = 1024;
  int64_t vocab_size = 0;
  std::string dtype = "uint16";
  static const ConfigTable<TokensOptions>& config_table();
};

// The byte tokenizer: each byte of a text is a token. It needs no vocabulary file and can represent every text.

inline constexpr int64_t kByteVocabulary = 256;  ///< number of different tokens
inline constexpr int64_t kEndOfText = 0;         ///< ends each document; not allowed in a text

/// Returns the bytes as numbers.
std::vector<int64_t> byte_tokens(std::string_view text);
/// Returns a document: the bytes, then kEndOfText; empty for an empty text. Error(Data) names `source` if the text has a byte 0.
std::string document_bytes(std::string_view text, const std::string& source);
/// Like document_bytes(), as numbers.
std::vector<int64_t> document_tokens(std::string_view text, const std::string& source);
/// Returns the text of tokens, without each kEndOfText. Error(Data) for a token above 255.
std::string text_of_bytes(const std::vector<int64_t>& tokens);

}  // namespace npu_train
