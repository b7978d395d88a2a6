#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/text/utf8.hpp"
#include "text/charsmap.hpp"
#include "text/regex.hpp"
#include "text/sentencepiece.hpp"

namespace npu_train::detail {
namespace {

// Follows Normalizer::Normalize() of SentencePiece step by step, because ids depend on each space.
class PieceText final : public PreTokenizer {
 public:
  PieceText(const SentencePieceFile& file, PartBeginnings beginnings, const std::string& where)
      : prefix_(file.dummy_prefix && beginnings.prefix),
        each_part_(beginnings.legacy),
        at_end_(file.space_at_end),
        removes_(file.remove_spaces),
        space_(file.escape_spaces ? kSpaceSign : " "),
        symbols_(user_symbols(file)) {
    if (!file.charsmap.empty()) map_ = Charsmap(file.charsmap, where);
  }

  void split(TextPart part, const TextPartSink& sink) const override {
    const auto text = normalized(part.text, part.first);
    if (!text.empty()) sink({text, part.first});
  }

 private:
  // Returns the replacement of the beginning of a text, and the number of bytes that it replaces. User-defined symbols stay unchanged.
  Charsmap::Match replacement(std::string_view text) const {
    const auto symbol = symbols_.longest(text, 0);
    if (symbol.second != kNoToken) return {symbol.first, text.substr(0, symbol.first)};
    const auto match = map_.longest(text);
    if (match.bytes > 0) return match;
    const auto end = behind_point(text, 0);
    return {end, text.substr(0, end)};
  }

  std::string normalized(std::string_view text, bool first) const {
    const bool prefixed = prefix_ && (first || each_part_);
    const bool keeps_space = !first && !each_part_ && (text.starts_with(' ') || text.starts_with(kSpaceSign));
    bool behind_space = removes_ && !keeps_space;
    while (behind_space && !text.empty()) {
      const auto match = replacement(text);
      if (match.text != " ") break;
      text.remove_prefix(match.bytes);
    }
    std::string out;
    if (text.empty()) return out;
    out.reserve(text.size() + text.size() / 2);
    if (prefixed && !at_end_) out += space_;
    while (!text.empty()) {
      auto [bytes, part] = replacement(text);
      while (behind_space && part.starts_with(' ')) part.remove_prefix(1);
      for (const char c : part) c == ' ' ? out += space_ : out += c;
      check_text_size(out.size());
      if (!part.empty()) behind_space = removes_ && part.ends_with(' ');
      text.remove_prefix(bytes);
    }
    while (removes_ && out.ends_with(space_)) out.resize(out.size() - space_.size());
    if (prefixed && at_end_) out += space_;
    return out;
  }

  bool prefix_, each_part_, at_end_, removes_;
  std::string_view space_;
  Charsmap map_;
  TokenTrie symbols_;
};

// Follows SentencePieceProcessor::Decode().
class PieceDecoder final : public TokenDecoder {
 public:
  PieceDecoder(const SentencePieceFile& file, PartBeginnings beginnings)
      : bytes_(file.byte_fallback), removes_(file.remove_spaces), omits_(removes_ || (file.dummy_prefix && beginnings.prefix)) {}

  std::vector<std::string> decoded(std::vector<std::string> pieces) const override {
    std::string out, bytes;
    bool begins = true;    // nothing was appended, and no space was omitted
    bool omitted = false;  // the space of dummy_prefix was omitted
    for (const auto& piece : pieces) {
      const int byte = bytes_ ? byte_of_piece(piece) : -1;
      if (byte >= 0) {
        bytes += static_cast<char>(static_cast<unsigned char>(byte));
        continue;
      }
      append_bytes(bytes, out);
      bytes.clear();
      if (omitted || !out.empty()) begins = false;
      const bool omits = begins && omits_ && piece.starts_with(kSpaceSign);
      omitted = omits && !removes_;
      append_piece(std::string_view(piece).substr(omits ? kSpaceSign.size() : 0), out);
    }
    append_bytes(bytes, out);
    return {std::move(out)};
  }

 private:
  // Each byte that is not UTF-8 becomes U+FFFD.
  static void append_bytes(std::string_view bytes, std::string& out) {
    while (!bytes.empty()) {
      const auto bad = first_invalid_byte(bytes);
      out += bytes.substr(0, bad);
      if (bad == std::string_view::npos) return;
      out += "\xEF\xBF\xBD";
      bytes.remove_prefix(bad + 1);
    }
  }

  static void append_piece(std::string_view piece, std::string& out) {
    for (size_t at = piece.find(kSpaceSign); at != std::string_view::npos; at = piece.find(kSpaceSign)) {
      out.append(piece.substr(0, at)) += ' ';
      piece.remove_prefix(at + kSpaceSign.size());
    }
    out += piece;
  }

  bool bytes_, removes_, omits_;
};

}  // namespace

std::unique_ptr<PreTokenizer> sentencepiece_text(const SentencePieceFile& file, PartBeginnings beginnings, const std::string& where) {
  return std::make_unique<PieceText>(file, beginnings, where + ": normalizer_spec.precompiled_charsmap");
}

std::unique_ptr<TokenDecoder> sentencepiece_decoder(const SentencePieceFile& file, PartBeginnings beginnings) {
  return std::make_unique<PieceDecoder>(file, beginnings);
}

}  // namespace npu_train::detail
