// Creates a tokenizer from a SentencePiece model and the files of transformers next to it, which determine the tokens around a text.
#include "text/sentencepiece.hpp"

#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "text/settings_file.hpp"

namespace npu_train::detail {
namespace {

// Families of tokenizer classes of transformers that add the same tokens to the ids of a text.
enum class PieceFamily { Plain, Llama, Gemma, T5, Albert, XLNet };

// The family of each tokenizer class, and of each `model_type` in config.json. The model_type is used if tokenizer_config.json does not
// name the class.
constexpr std::pair<const char*, PieceFamily> kPieceClasses[] = {
    {"LlamaTokenizer", PieceFamily::Llama}, {"GemmaTokenizer", PieceFamily::Gemma},   {"T5Tokenizer", PieceFamily::T5},
    {"MT5Tokenizer", PieceFamily::T5},      {"AlbertTokenizer", PieceFamily::Albert}, {"XLNetTokenizer", PieceFamily::XLNet}};
constexpr std::pair<const char*, PieceFamily> kPieceModelTypes[] = {
    {"llama", PieceFamily::Llama}, {"mistral", PieceFamily::Llama}, {"mixtral", PieceFamily::Llama}, {"gemma", PieceFamily::Gemma},
    {"t5", PieceFamily::T5},       {"mt5", PieceFamily::T5},        {"albert", PieceFamily::Albert}, {"xlnet", PieceFamily::XLNet}};

class SentencePieceReader {
 public:
  SentencePieceReader(const std::filesystem::path& file, SentencePieceFile model)
      : folder_(file.parent_path()),
        file_(file.string()),
        settings_((folder_ / "tokenizer_config.json").string()),
        config_(read_settings_file(settings_).value_or(Json::object())),
        model_(std::move(model)),
        family_(family()) {}

  TokenizerParts parts() {
    config_.members(settings_);  // checks that it is an object
    const auto* options = given_setting(config_, "sp_model_kwargs");
    check(options == nullptr || options->members(settings_ + ": sp_model_kwargs").empty(), ErrorKind::Data, "tokenizer", settings_,
          ": sp_model_kwargs is not supported; allowed: {}");
    check(!flag("split_special_tokens", false), ErrorKind::Data, "tokenizer", settings_,
          ": split_special_tokens is not supported; allowed: false");
    const PartBeginnings beginnings{.legacy = flag("legacy", true), .prefix = flag("add_prefix_space", true)};
    TokenizerParts out;
    if (family_ == PieceFamily::Albert || family_ == PieceFamily::XLNet) {
      out.normalizer = read_normalizer(cleaning(), settings_);
      part_commas();
    }
    out.pre_tokenizer = sentencepiece_text(model_, beginnings, file_);
    out.model = sentencepiece_model(model_, file_);
    out.added =
        AddedTokens(added_tokens(), out.model->vocabulary(), nullptr, file_ + " with the added tokens of the files next to it: token ");
    out.around = around(out);
    out.decoder = sentencepiece_decoder(model_, beginnings);
    return out;
  }

 private:
  PieceFamily family() const {
    if (const auto* name = given_setting(config_, "tokenizer_class")) {
      const auto& text = name->text(settings_ + ": tokenizer_class");
      const auto fast = text.ends_with("Fast") ? text.size() - 4 : text.size();
      return family_of(text.substr(0, fast), kPieceClasses, settings_ + ": the tokenizer_class");
    }
    const auto path = folder_ / "config.json";
    const auto config = read_settings_file(path);
    const auto* type = config ? given_setting(*config, "model_type") : nullptr;
    if (type == nullptr) return PieceFamily::Plain;
    return family_of(type->text(path.string() + ": model_type"), kPieceModelTypes, path.string() + ": the model_type");
  }

  // Returns the family of a name. Refuses names that `table` lacks: their tokenizer classes change ids, or add tokens that no file lists.
  template <class Table>
  static PieceFamily family_of(const std::string& name, const Table& table, const std::string& what) {
    std::string allowed;
    for (const auto& [known, of] : table) {
      if (name == known) return of;
      allowed += (allowed.empty() ? "" : ", ") + std::string(known);
    }
    throw Error(ErrorKind::Data, "tokenizer",
                what + " '" + visible_start(name, 100) + "' is not supported with a model of SentencePiece; allowed: " + allowed,
                "save the tokenizer with its tokenizer.json, which is preferred");
  }

  bool flag(const char* key, bool missing) const { return flag_of_setting(&config_, key, missing, settings_); }
  static bool flag_of_setting(const Json* object, const char* key, bool missing, const std::string& where) {
    const auto* found = object == nullptr ? nullptr : given_setting(*object, key);
    return found == nullptr ? missing : found->boolean(where + ": " + key);
  }

  // Returns the normalizer that processes a text before SentencePiece does.
  Json cleaning() const {
    const auto step = [](const char* type) { return Json::object({{"type", type}}); };
    const auto quotes = [](const char* text) {
      return Json::object({{"type", "Replace"}, {"pattern", Json::object({{"String", text}})}, {"content", "\""}});
    };
    std::vector<Json> steps{quotes("``"), quotes("''")};
    if (!flag("keep_accents", false)) {
      steps.push_back(step("NFKD"));
      steps.push_back(step("StripAccents"));
    }
    if (flag("do_lower_case", family_ == PieceFamily::Albert)) steps.push_back(step("Lowercase"));
    return Json::object({{"type", "Sequence"}, {"normalizers", Json::array(std::move(steps))}});
  }

  // Lowers the scores of pieces that end with a digit and a comma, so that a comma is separated from a digit before it, as in transformers.
  void part_commas() {
    for (auto& piece : model_.pieces) {
      const auto size = piece.text.size();
      if (size > 1 && piece.text.back() == ',' && piece.text[size - 2] >= '0' && piece.text[size - 2] <= '9') piece.score -= 100;
    }
  }

  // Returns the tokens that the settings name as special, each with the object that describes it, or nullptr.
  std::map<std::string, const Json*, std::less<>> special_tokens() const {
    std::map<std::string, const Json*, std::less<>> out;
    for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
      if (const auto text = special_token(config_, key, settings_); !text.empty()) {
        const auto* token = given_setting(config_, key);
        out.emplace(text, token->is_object() ? token : nullptr);
      }
    for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
      const auto where = settings_ + ": " + key;
      const auto* list = given_setting(config_, key);
      const auto add = [&](const Json& token) {
        const bool is_object = token.is_object();
        out.emplace((is_object ? token.at("content", where) : token).text(where), is_object ? &token : nullptr);
      };
      if (list == nullptr) continue;
      if (list->is_object()) {
        for (const auto& member : list->members(where)) add(member.value);
      } else {
        for (const auto& token : list->items(where)) add(token);
      }
    }
    return out;
  }

  // Returns the list of added tokens in the form of tokenizer.json: special pieces, and tokens that were added to the pieces of the file.
  // Of several tokens with one id, the last one counts.
  Json added_tokens() const {
    constexpr size_t kMost = 100'000;  // bounds the memory: a token takes far more than its piece in the file
    const auto special = special_tokens();
    std::map<int64_t, Json> by_id;
    const auto add = [&](int64_t id, const std::string& content, const Json* object, bool is_special) {
      const auto has_flag = [&](const char* key) { return flag_of_setting(object, key, false, settings_); };
      by_id[id] = Json::object({{"id", id},
                                {"content", content},
                                {"single_word", has_flag("single_word")},
                                {"lstrip", has_flag("lstrip")},
                                {"rstrip", has_flag("rstrip")},
                                {"normalized", false},
                                {"special", is_special || special.contains(content)}});
      check(by_id.size() <= kMost, ErrorKind::Data, "tokenizer", file_, ": more than ", kMost, " special and added tokens");
    };
    for (size_t i = 0; i < model_.pieces.size(); ++i) {
      const auto& piece = model_.pieces[i];
      const auto named = special.find(piece.text);
      const bool is_special = piece.type == SentencePiece::Type::Control || piece.type == SentencePiece::Type::Unknown;
      if (is_special || named != special.end())
        add(static_cast<int64_t>(i), std::string(piece.text), named == special.end() ? nullptr : named->second, true);
    }
    const auto* decoder = given_setting(config_, "added_tokens_decoder");
    if (family_ == PieceFamily::T5 && decoder == nullptr) add_sentinels(add);
    const auto path = folder_ / "added_tokens.json";
    if (const auto file = read_settings_file(path))
      for (const auto& member : file->members(path.string())) add(member.value.integer(path.string()), member.key, nullptr, false);
    const auto where = settings_ + ": added_tokens_decoder";
    if (decoder != nullptr)
      for (const auto& [key, token] : decoder->members(where)) {
        const auto id = whole_number(key);
        check(id.has_value(), ErrorKind::Data, "tokenizer", where, ": '", visible_start(key, 40), "' is not an id");
        add(*id, token.at("content", where).text(where), &token, flag_of_setting(&token, "special", false, where));
      }
    Json out = Json::array();
    for (auto& [id, token] : by_id) out.push_back(std::move(token));
    return out;
  }

  // Adds the tokens with which T5 marks gaps in a text. Their ids follow those of the pieces of the file; the first token has the largest
  // id. The spaces around these tokens are removed.
  template <class Add>
  void add_sentinels(const Add& add) const {
    constexpr int64_t kMost = 10'000;
    const auto* given = given_setting(config_, "extra_ids");
    const int64_t count = given == nullptr ? 100 : given->integer(settings_ + ": extra_ids");
    check(count >= 0 && count <= kMost, ErrorKind::Data, "tokenizer", settings_, ": extra_ids is ", count, "; allowed: 0 to ", kMost);
    const auto pieces = static_cast<int64_t>(model_.pieces.size());
    const auto strips = Json::object({{"lstrip", true}, {"rstrip", true}});
    for (int64_t i = 0; i < count; ++i) add(pieces + count - 1 - i, "<extra_id_" + std::to_string(i) + ">", &strips, true);
  }

  TokenTemplate around(const TokenizerParts& made) const {
    const auto token = [&](const char* key, const char* missing) -> std::vector<int32_t> {
      auto text = special_token(config_, key, settings_);
      if (text.empty()) text = missing;
      const auto* added = made.added.find(text);
      const auto id = added != nullptr ? added->id : made.model->vocabulary().id_of(text);
      check(id != kNoToken, ErrorKind::Data, "tokenizer", settings_, ": the ", key, " '", visible_start(text, 40), "' is not a token of ",
            file_);
      return {id};
    };
    std::vector<int32_t> before, behind, last;
    switch (family_) {
      case PieceFamily::Plain:
      case PieceFamily::Llama:
      case PieceFamily::Gemma: {
        const bool gemma = family_ == PieceFamily::Gemma;
        if (flag("add_bos_token", family_ != PieceFamily::Plain)) before = token("bos_token", gemma ? "<bos>" : "<s>");
        if (flag("add_eos_token", false)) behind = token("eos_token", gemma ? "<eos>" : "</s>");
        break;
      }
      case PieceFamily::T5:
        behind = token("eos_token", "</s>");
        break;
      case PieceFamily::Albert:
        before = token("cls_token", "[CLS]");
        behind = token("sep_token", "[SEP]");
        break;
      case PieceFamily::XLNet:
        behind = token("sep_token", "<sep>");
        last = token("cls_token", "<cls>");
        break;
    }
    return surrounded(before, behind, last);
  }

  TokenTemplate surrounded(const std::vector<int32_t>& before, const std::vector<int32_t>& behind, const std::vector<int32_t>& last) const {
    const auto add = [](std::vector<TemplatePart>& list, const std::vector<int32_t>& ids, int32_t type) {
      if (!ids.empty()) list.push_back({ids, false, type});
    };
    const int32_t second = family_ == PieceFamily::T5 ? 0 : 1;
    TokenTemplate out;
    add(out.single, before, 0);
    out.single.push_back({{}, false, 0});
    add(out.single, behind, 0);
    out.pair = out.single;
    if (family_ != PieceFamily::Albert) add(out.pair, before, second);
    out.pair.push_back({{}, true, second});
    add(out.pair, behind, second);
    add(out.single, last, 2);
    add(out.pair, last, 2);
    return out;
  }

  std::filesystem::path folder_;
  std::string file_, settings_;
  Json config_;
  SentencePieceFile model_;
  PieceFamily family_;
};

}  // namespace

TokenizerParts read_sentencepiece(const std::filesystem::path& file, uint64_t max_bytes) {
  const auto bytes = read_file(file, max_bytes);
  return SentencePieceReader(file, read_sentencepiece_file(bytes, file.string())).parts();
}

}  // namespace npu_train::detail
