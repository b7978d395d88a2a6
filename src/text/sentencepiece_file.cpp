// The format is defined in sentencepiece_model.proto of SentencePiece; the field numbers here are those of that file.
#include <array>
#include <cmath>
#include <protozero/exception.hpp>
#include <protozero/pbf_reader.hpp>
#include <string>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/text/utf8.hpp"
#include "text/sentencepiece.hpp"

namespace npu_train::detail {
namespace {

using protozero::pbf_reader;
using Type = SentencePiece::Type;

constexpr uint32_t text_field(uint32_t number) { return protozero::tag_and_type(number, protozero::pbf_wire_type::length_delimited); }
constexpr uint32_t number_field(uint32_t number) { return protozero::tag_and_type(number, protozero::pbf_wire_type::varint); }
constexpr uint32_t float_field(uint32_t number) { return protozero::tag_and_type(number, protozero::pbf_wire_type::fixed32); }

std::string_view text_of(pbf_reader& in) {
  const auto view = in.get_view();
  return {view.data(), view.size()};
}

// get_bool() of protozero reads only the first byte, even if it is beyond the end.
bool flag_of(pbf_reader& in) { return in.get_uint64() != 0; }

[[noreturn]] void refuse_field(const pbf_reader& in, const std::string& where) {
  throw Error(
      ErrorKind::Data, "tokenizer",
      str_cat(where, ": the field ", in.tag(), " is not supported; allowed: a model of SentencePiece with the fields of its release 0.2"));
}

SentencePiece read_piece(pbf_reader in, const std::string& where) {
  SentencePiece out;
  while (in.next()) {
    switch (in.tag_and_type()) {
      case text_field(1):
        out.text = text_of(in);
        break;
      case float_field(2):
        out.score = in.get_float();
        break;
      case number_field(3): {
        const auto type = in.get_int32();
        check(type >= 1 && type <= 6, ErrorKind::Data, "tokenizer", where, ": the type is ", type, "; allowed: 1 to 6");
        out.type = static_cast<Type>(type);
        break;
      }
      default:
        refuse_field(in, where);
    }
  }
  check(!out.text.empty() && first_invalid_byte(out.text) == std::string_view::npos, ErrorKind::Data, "tokenizer", where, ": the text is ",
        out.text.empty() ? "empty" : "not UTF-8");
  // Within these limits, no sum of scores over a text is infinite.
  check(std::abs(out.score) <= 1e30F, ErrorKind::Data, "tokenizer", where, ": the score is ", out.score, "; allowed: -1e30 to 1e30");
  return out;
}

// Reads the settings of the training. Most of them have no effect on ids.
void read_trainer(pbf_reader in, SentencePieceFile& out, const std::string& where) {
  while (in.next()) {
    switch (in.tag_and_type()) {
      case number_field(3): {
        const auto type = in.get_int32();
        check(type == 1 || type == 2, ErrorKind::Data, "tokenizer", where, ": the model_type is ", type,
              type == 3   ? " (word)"
              : type == 4 ? " (char)"
                          : "",
              "; allowed: 1 (unigram), 2 (bpe)");
        out.bpe = type == 2;
        break;
      }
      case number_field(24):
        out.space_at_end = flag_of(in);
        break;
      case number_field(35):
        out.byte_fallback = flag_of(in);
        break;
      default:
        if (in.tag() == 3 || in.tag() == 24 || in.tag() == 35) refuse_field(in, where);
        in.skip();
    }
  }
}

void read_normalization(pbf_reader in, SentencePieceFile& out, const std::string& where) {
  while (in.next()) {
    switch (in.tag_and_type()) {
      case text_field(1):  // name of the rules
      case text_field(6):  // the rules from which the map was made
        in.skip();
        break;
      case text_field(2):
        out.charsmap = text_of(in);
        break;
      case number_field(3):
        out.dummy_prefix = flag_of(in);
        break;
      case number_field(4):
        out.remove_spaces = flag_of(in);
        break;
      case number_field(5):
        out.escape_spaces = flag_of(in);
        break;
      default:
        refuse_field(in, where);
    }
  }
}

// Checks that the file does not change decoded texts.
void check_no_denormalization(pbf_reader in, const std::string& where) {
  SentencePieceFile rules;
  read_normalization(in, rules, where);
  check(rules.charsmap.empty(), ErrorKind::Data, "tokenizer", where, ": replacements in decoded texts are not supported");
}

SentencePieceFile read_fields(pbf_reader in, const std::string& where) {
  SentencePieceFile out;
  while (in.next()) {
    switch (in.tag_and_type()) {
      case text_field(1):
        check(out.pieces.size() <= static_cast<size_t>(kLargestTokenId), ErrorKind::Data, "tokenizer", where,
              ": more pieces than the largest id ", kLargestTokenId, " allows");
        out.pieces.push_back(read_piece(in.get_message(), where + ": piece " + std::to_string(out.pieces.size())));
        break;
      case text_field(2):
        read_trainer(in.get_message(), out, where + ": trainer_spec");
        break;
      case text_field(3):
        read_normalization(in.get_message(), out, where + ": normalizer_spec");
        break;
      case text_field(4):  // examples, with which SentencePiece tests itself
        in.skip();
        break;
      case text_field(5):
        check_no_denormalization(in.get_message(), where + ": denormalizer_spec");
        break;
      default:
        refuse_field(in, where);
    }
  }
  return out;
}

// Checks what SentencePiece checks when it loads a file.
void check_pieces(SentencePieceFile& file, const std::string& where) {
  size_t unknown = 0;
  std::array<bool, 256> bytes{};
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    const auto& piece = file.pieces[i];
    const auto place = [&] { return str_cat(where, ": piece ", i, " '", visible_start(piece.text, 40), "'"); };
    if (piece.type == Type::Unknown) {
      file.unknown = static_cast<int32_t>(i);
      ++unknown;
    }
    if (piece.type == Type::Byte) {
      const int byte = byte_of_piece(piece.text);
      if (byte < 0 || !file.byte_fallback)
        throw Error(ErrorKind::Data, "tokenizer", place() + (byte < 0 ? " is not a byte" : " is a byte, and byte_fallback is false"));
      bytes[static_cast<size_t>(byte)] = true;
    }
    if (piece.type == Type::Unused && file.bpe)
      throw Error(ErrorKind::Data, "tokenizer", place() + " is unused, which is not supported in a model of the type bpe");
  }
  check(unknown == 1, ErrorKind::Data, "tokenizer", where, ": ", unknown, " unknown pieces; allowed: one");
  for (size_t byte = 0; byte < bytes.size(); ++byte)
    check(bytes[byte] || !file.byte_fallback, ErrorKind::Data, "tokenizer", where, ": byte_fallback needs a piece for each byte, and ",
          byte, " has none");
}

}  // namespace

int byte_of_piece(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return -1;
  const auto high = kDigits.find(text[3]), low = kDigits.find(text[4]);
  return high == kDigits.npos || low == kDigits.npos ? -1 : static_cast<int>(high * 16 + low);
}

SentencePieceFile read_sentencepiece_file(std::string_view bytes, const std::string& where) {
  try {
    auto out = read_fields(pbf_reader(bytes.data(), bytes.size()), where);
    check_pieces(out, where);
    return out;
  } catch (const protozero::exception& e) {
    throw Error(ErrorKind::Data, "tokenizer", where + ": is damaged, or is not a model of SentencePiece: " + e.what());
  }
}

}  // namespace npu_train::detail
