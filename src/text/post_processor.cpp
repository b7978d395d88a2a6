#include "text/tokenizer_steps.hpp"

#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "text/added_tokens.hpp"
#include "text/json_fields.hpp"
#include "text/vocabulary.hpp"

namespace npu_train::detail {
namespace {

class Reader {
 public:
  Reader(const Vocabulary& vocabulary, const AddedTokens& added) : vocabulary_(vocabulary), added_(added) {}

  TokenTemplate read(const Json& json, const std::string& where) const {
    JsonFields fields(json, where);
    auto out = of_type(fields.text("type"), fields);
    fields.finish();
    return out;
  }

 private:
  TokenTemplate of_type(const std::string& type, JsonFields& fields) const {
    if (type == "TemplateProcessing") return of_template(fields);
    if (type == "BertProcessing") return around(fields, /*separators=*/1, /*second_type=*/1);
    if (type == "RobertaProcessing") {
      fields.unused("trim_offsets");
      fields.unused("add_prefix_space");
      return around(fields, /*separators=*/2, /*second_type=*/0);
    }
    if (type == "ByteLevel") {  // changes only the positions of tokens in the text
      for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) fields.unused(key);
      return {};
    }
    if (type == "Sequence") return of_sequence(fields);
    refuse_type(fields.where(), type, "BertProcessing, ByteLevel, RobertaProcessing, Sequence, TemplateProcessing");
  }

  void check_token(const std::string& token, int64_t id, const std::string& where) const {
    const auto* known = vocabulary_.token_of(id);
    const auto* added = added_.find(id);
    check((known != nullptr && *known == token) || (added != nullptr && added->content == token), ErrorKind::Data, "tokenizer", where,
          ": '", visible_start(token, 40), "' is not the token ", id);
  }

  // Returns the id in a member such as ["[SEP]", 102].
  std::vector<int32_t> named_token(JsonFields& fields, const std::string& key) const {
    const auto where = fields.where(key);
    const auto& pair = fields.at(key).items(where);
    check(pair.size() == 2, ErrorKind::Data, "tokenizer", where, ": ", pair.size(), " values; allowed: a token and its id");
    check_token(pair[0].text(where), pair[1].integer(where), where);
    return {static_cast<int32_t>(pair[1].integer(where))};
  }

  // Returns the templates `cls A sep` for one text and `cls A sep [sep] B sep` for two texts; with one separator, [sep] is omitted.
  TokenTemplate around(JsonFields& fields, int separators, int32_t second_type) const {
    const auto sep = named_token(fields, "sep"), cls = named_token(fields, "cls");
    TokenTemplate out;
    out.single = {{cls, false, 0}, {{}, false, 0}, {sep, false, 0}};
    out.pair = out.single;
    if (separators == 2) out.pair.push_back({sep, false, 0});
    out.pair.push_back({{}, true, second_type});
    out.pair.push_back({sep, false, second_type});
    return out;
  }

  TokenTemplate of_template(JsonFields& fields) const {
    std::vector<std::pair<std::string, std::vector<int32_t>>> special;
    for (const auto& member : fields.at("special_tokens").members(fields.where("special_tokens"))) {
      JsonFields token(member.value, fields.where("special_tokens") + "." + visible_start(member.key, 40));
      token.unused("id");
      const auto& ids = token.at("ids").items(token.where("ids"));
      const auto& texts = token.at("tokens").items(token.where("tokens"));
      token.finish();
      check(!ids.empty() && ids.size() == texts.size(), ErrorKind::Data, "tokenizer", token.where(), ": ", ids.size(), " ids and ",
            texts.size(), " tokens; allowed: equally many, at least one");
      std::vector<int32_t> list;
      for (size_t i = 0; i < ids.size(); ++i) {
        check_token(texts[i].text(token.where("tokens")), ids[i].integer(token.where("ids")), token.where());
        list.push_back(static_cast<int32_t>(ids[i].integer(token.where("ids"))));
      }
      special.emplace_back(member.key, std::move(list));
    }
    const auto parts = [&](const std::string& key, bool pair) {
      std::vector<TemplatePart> out;
      const auto& list = read_steps(fields, key);
      for (size_t i = 0; i < list.size(); ++i) out.push_back(part(list[i], str_cat(fields.where(key), "[", i, "]"), special, pair));
      return out;
    };
    auto single = parts("single", false);
    return {std::move(single), parts("pair", true)};
  }

  // Reads {"SpecialToken": {"id": "[CLS]", "type_id": 0}} or {"Sequence": {"id": "A", "type_id": 0}}.
  static TemplatePart part(const Json& json, const std::string& where,
                           const std::vector<std::pair<std::string, std::vector<int32_t>>>& special, bool pair) {
    JsonFields fields(json, where);
    const auto* token = fields.find("SpecialToken");
    const auto* text = fields.find("Sequence");
    fields.finish();
    check((token != nullptr) != (text != nullptr), ErrorKind::Data, "tokenizer", where, ": allowed: either a SpecialToken or a Sequence");
    JsonFields inner(token != nullptr ? *token : *text, where);
    TemplatePart out;
    out.type = static_cast<int32_t>(inner.integer("type_id", 0, 1 << 20));
    const auto id = inner.text("id");
    inner.finish();
    if (text != nullptr) {
      check(id == "A" || (pair && id == "B"), ErrorKind::Data, "tokenizer", where, ": the sequence '", visible_start(id, 40),
            "'; allowed: ", pair ? "A, B" : "A");
      out.second = id == "B";
      return out;
    }
    for (const auto& [name, ids] : special)
      if (name == id) out.ids = ids;
    check(!out.ids.empty(), ErrorKind::Data, "tokenizer", where, ": '", visible_start(id, 40), "' is not one of the special_tokens");
    return out;
  }

  // Allows one template. The package tokenizers would apply several templates one after the other, but published files have only one, in
  // addition to ByteLevel.
  TokenTemplate of_sequence(JsonFields& fields) const {
    TokenTemplate out;
    const auto& list = read_steps(fields, "processors");
    for (size_t i = 0; i < list.size(); ++i) {
      const auto where = str_cat(fields.where("processors"), "[", i, "]");
      auto next = read(list[i], where);
      if (next.single.empty()) continue;
      check(out.single.empty(), ErrorKind::Data, "tokenizer", where, ": a second template is not supported");
      out = std::move(next);
    }
    return out;
  }

  const Vocabulary& vocabulary_;
  const AddedTokens& added_;
};

}  // namespace

TokenTemplate read_post_processor(const Json& json, const std::string& where, const Vocabulary& vocabulary, const AddedTokens& added) {
  return Reader(vocabulary, added).read(json, where);
}

}  // namespace npu_train::detail
