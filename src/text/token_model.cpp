#include "text/token_model.hpp"

#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "text/json_fields.hpp"

namespace npu_train::detail {

namespace {

// Returns the type of a model. Files of early versions of the package tokenizers, such as those of GPT-2 and BERT, do not name the type.
std::string type_of_model(const Json& json, const std::string& where) {
  if (const auto* type = json.find("type")) return type->text(where + ".type");
  if (json.find("merges") != nullptr) return "BPE";
  if (json.find("max_input_chars_per_word") != nullptr) return "WordPiece";
  return json.at("vocab", where).is_array() ? "Unigram" : "WordLevel";
}

}  // namespace

std::unique_ptr<TokenModel> read_token_model(const Json& json, const std::string& where) {
  const auto type = type_of_model(json, where);
  if (type == "BPE") return read_bpe(json, where);
  if (type == "WordPiece") return read_word_piece(json, where);
  if (type == "WordLevel") return read_word_level(json, where);
  if (type == "Unigram") return read_unigram(json, where);
  refuse_type(where, type, "BPE, Unigram, WordLevel, WordPiece");
}

void read_vocabulary(Vocabulary& out, const Json& json, const std::string& where) {
  for (const auto& member : json.members(where)) {
    check(member.value.kind() == Json::Kind::Integer, ErrorKind::Data, "tokenizer", where, ": the id of '", visible_start(member.key, 40),
          "' is not an integer");
    out.add(member.key, member.value.integer(where), where);
  }
}

ByteTokens::ByteTokens(const Vocabulary& vocabulary) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte)
    ids_.push_back(vocabulary.id_of({std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">"}));
}

bool ByteTokens::append(std::string_view text, std::vector<int32_t>& out) const {
  if (ids_.empty()) return false;
  const auto size = out.size();
  for (const char c : text) {
    const auto id = ids_[static_cast<unsigned char>(c)];
    if (id == kNoToken) {
      out.resize(size);
      return false;
    }
    out.push_back(id);
  }
  return true;
}

}  // namespace npu_train::detail
