#include "text/tokenizer_steps.hpp"

#include <charconv>
#include <functional>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/text/utf8.hpp"
#include "text/byte_characters.hpp"
#include "text/json_fields.hpp"
#include "text/regex.hpp"

namespace npu_train::detail {
namespace {

using Texts = std::vector<std::string>;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); !from.empty() && at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

template <class Decode>
class Decoder final : public TokenDecoder {
 public:
  explicit Decoder(Decode decode) : decode_(std::move(decode)) {}
  Texts decoded(Texts tokens) const override { return decode_(std::move(tokens)); }

 private:
  Decode decode_;
};

template <class Decode>
std::unique_ptr<TokenDecoder> decoder(Decode decode) {
  return std::make_unique<Decoder<Decode>>(std::move(decode));
}

Texts joined(Texts tokens) {
  std::string out;
  for (const auto& token : tokens) out += token;
  return {std::move(out)};
}

// A token with a character that represents no byte stays unchanged.
Texts bytes_of_characters(Texts tokens) {
  std::string bytes;
  for (const auto& token : tokens)
    if (!append_bytes_of_characters(token, bytes)) bytes += token;
  return {with_replacements(bytes)};
}

// Returns the byte of "<0x41>"; -1 for another token.
int byte_of_token(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
  const char* digits = token.data() + 3;
  if (*digits == '+') ++digits;
  int byte = -1;
  const auto [end, error] = std::from_chars(digits, token.data() + 5, byte, 16);
  return error == std::errc() && end == token.data() + 5 && *digits != '-' ? byte : -1;
}

// If successive bytes are not UTF-8, each of them becomes U+FFFD.
Texts joined_bytes(Texts tokens) {
  Texts out;
  std::string bytes;
  const auto finish = [&] {
    if (bytes.empty()) return;
    if (first_invalid_byte(bytes) == std::string_view::npos) {
      out.push_back(bytes);
    } else {
      out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
    }
    bytes.clear();
  };
  for (auto& token : tokens) {
    if (const int byte = byte_of_token(token); byte >= 0) {
      bytes += static_cast<char>(static_cast<unsigned char>(byte));
    } else {
      finish();
      out.push_back(std::move(token));
    }
  }
  finish();
  return out;
}

void clean_up(std::string& text) {
  static constexpr std::pair<const char*, const char*> kPairs[] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                                                   {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                                                   {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kPairs) replace_all(text, from, to);
}

std::unique_ptr<TokenDecoder> read_word_pieces(JsonFields& fields) {
  const auto prefix = fields.text("prefix");
  const bool cleanup = fields.flag("cleanup");
  return decoder([prefix, cleanup](Texts tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      auto& token = tokens[i];
      if (i > 0) token = token.starts_with(prefix) ? token.substr(prefix.size()) : " " + token;
      if (cleanup) clean_up(token);
    }
    return tokens;
  });
}

std::unique_ptr<TokenDecoder> read_metaspace(JsonFields& fields) {
  std::string space;
  append_point(space, fields.character("replacement"));
  fields.unused("str_rep");
  fields.unused("split");
  const auto scheme = fields.optional_text("prepend_scheme");
  const bool given = fields.find("add_prefix_space") != nullptr;
  bool prepended = scheme.value_or("always") != "never";
  if (given && !fields.flag("add_prefix_space")) prepended = false;
  return decoder([space, prepended](Texts tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], space, i == 0 && prepended ? "" : " ");
    return tokens;
  });
}

std::unique_ptr<TokenDecoder> read_strip(JsonFields& fields) {
  std::string content;
  append_point(content, fields.character("content"));
  const auto start = fields.integer("start", 0, 1 << 20), stop = fields.integer("stop", 0, 1 << 20);
  return decoder([content, start, stop](Texts tokens) {
    for (auto& token : tokens) {
      size_t begin = 0, end = token.size();
      for (int64_t i = 0; i < start && std::string_view(token).substr(begin).starts_with(content); ++i) begin += content.size();
      for (int64_t i = 0; i < stop && end > begin && std::string_view(token).substr(begin, end - begin).ends_with(content); ++i)
        end -= content.size();
      token = token.substr(begin, end - begin);
    }
    return tokens;
  });
}

std::unique_ptr<TokenDecoder> read_suffixes(JsonFields& fields) {
  const auto suffix = fields.text("suffix");
  return decoder([suffix](Texts tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
    return tokens;
  });
}

std::unique_ptr<TokenDecoder> read_replacement(JsonFields& fields) {
  auto pattern = std::make_shared<const Regex>(read_pattern(fields.at("pattern"), fields.where("pattern")));
  const auto content = fields.text("content");
  return decoder([pattern, content](Texts tokens) {
    for (auto& token : tokens) token = replaced(token, *pattern, content);
    return tokens;
  });
}

std::unique_ptr<TokenDecoder> read_decoders(JsonFields& fields) {
  auto steps = std::make_shared<std::vector<std::unique_ptr<TokenDecoder>>>();
  const auto& list = read_steps(fields, "decoders");
  for (size_t i = 0; i < list.size(); ++i) steps->push_back(read_decoder(list[i], str_cat(fields.where("decoders"), "[", i, "]")));
  return decoder([steps](Texts tokens) {
    for (const auto& step : *steps) tokens = step->decoded(std::move(tokens));
    return tokens;
  });
}

std::unique_ptr<TokenDecoder> decoder_of(const std::string& type, JsonFields& fields) {
  if (type == "ByteLevel") {
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) fields.unused(key);
    return decoder(bytes_of_characters);
  }
  if (type == "WordPiece") return read_word_pieces(fields);
  if (type == "Metaspace") return read_metaspace(fields);
  if (type == "ByteFallback") return decoder(joined_bytes);
  if (type == "Fuse") return decoder(joined);
  if (type == "Strip") return read_strip(fields);
  if (type == "Replace") return read_replacement(fields);
  if (type == "BPEDecoder") return read_suffixes(fields);
  if (type == "Sequence") return read_decoders(fields);
  refuse_type(fields.where(), type, "BPEDecoder, ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip, WordPiece");
}

}  // namespace

std::unique_ptr<TokenDecoder> read_decoder(const Json& json, const std::string& where) {
  JsonFields fields(json, where);
  auto out = decoder_of(fields.text("type"), fields);
  fields.finish();
  return out;
}

}  // namespace npu_train::detail
