// Reads models of SentencePiece (Kudo and Richardson, "SentencePiece", EMNLP 2018), which are files with pieces and their scores, and
// converts texts to ids with them. The reference implementation is the package sentencepiece.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/token_model.hpp"
#include "text/tokenizer_parts.hpp"

namespace npu_train::detail {

/// A piece; its index in the file is its id.
struct SentencePiece {
  enum class Type { Normal = 1, Unknown = 2, Control = 3, UserDefined = 4, Unused = 5, Byte = 6 };
  std::string_view text;
  float score = 0;
  Type type = Type::Normal;
};

/// The contents of a file that determine ids.
struct SentencePieceFile {
  std::vector<SentencePiece> pieces;
  int32_t unknown = 0;         ///< id of the unknown piece
  bool bpe = false;            ///< true: BPE; false: Unigram
  bool byte_fallback = false;  ///< a character without a piece becomes bytes
  bool space_at_end = false;   ///< the space of `dummy_prefix` is added after the text
  bool dummy_prefix = true;    ///< a space is added to each text
  bool remove_spaces = true;   ///< removes spaces at both ends of a text, and all but one between words
  bool escape_spaces = true;   ///< a space becomes kSpaceSign
  std::string_view charsmap;   ///< replacements of characters; may be empty
};

/// Returns the byte of "<0x41>"; -1 for another text.
int byte_of_piece(std::string_view text);

/// Reads a file's content, which must outlive the result. Error(Data) with the name `where` if the file is damaged, or has anything that is
/// not supported.
SentencePieceFile read_sentencepiece_file(std::string_view bytes, const std::string& where);

/// How the beginning of each part of a text between special tokens is processed. The defaults are those of SentencePiece.
struct PartBeginnings {
  bool legacy = true;  ///< true: each part begins like a text; false (as in transformers): only the first; others keep one leading space
  bool prefix = true;  ///< true: a part that begins like a text gets the space of SentencePieceFile::dummy_prefix
};

/// Returns a pre-tokenizer that normalises a text like SentencePiece, and passes on the result as one word. Error(Data) with the name
/// `where` for a damaged charsmap.
std::unique_ptr<PreTokenizer> sentencepiece_text(const SentencePieceFile& file, PartBeginnings beginnings, const std::string& where);
/// Returns the decoder, which converts the texts of pieces to one text. The texts of special tokens may be among those of the pieces, and
/// stay unchanged.
std::unique_ptr<TokenDecoder> sentencepiece_decoder(const SentencePieceFile& file, PartBeginnings beginnings);

/// Returns the texts of the user-defined symbols, which no model divides.
TokenTrie user_symbols(const SentencePieceFile& file);

/// Returns the model of the file. Error(Data) with the name `where` if two pieces have the same text.
std::unique_ptr<TokenModel> sentencepiece_model(const SentencePieceFile& file, const std::string& where);

/// Reads a file and the tokenizer_config.json, added_tokens.json and config.json next to it. Error(Data) with the place.
TokenizerParts read_sentencepiece(const std::filesystem::path& file, uint64_t max_bytes);

}  // namespace npu_train::detail
