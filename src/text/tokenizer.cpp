#include "npu_train/text/tokenizer.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/text/utf8.hpp"
#include "text/json_fields.hpp"
#include "text/known_words.hpp"
#include "text/sentencepiece.hpp"
#include "text/tokenizer_parts.hpp"
#include "text/unicode.hpp"

namespace npu_train {
namespace {

using detail::AddedTokens;
using detail::JsonFields;

constexpr JsonLimits kLimits{.depth = 64, .values = 20'000'000, .max_bytes = uint64_t{256} << 20};

// Returns the names of tokenizer files in a folder. The first file that exists is read.
std::vector<std::string> tokenizer_names() { return {"tokenizer.json", "tokenizer.model", "spiece.model"}; }

// Mistral's files have endings such as .model.v3.
bool is_sentencepiece(const std::filesystem::path& file) { return file.filename().string().find(".model") != std::string::npos; }

}  // namespace

struct Tokenizer::Impl : detail::TokenizerParts {
  explicit Impl(detail::TokenizerParts parts) : TokenizerParts(std::move(parts)) {
    for (const auto& token : added.tokens())
      if (token.special) special.insert(token.content);
    if (around.single.empty()) around = {{{{}, false, 0}}, {{{}, false, 0}, {{}, true, 1}}};
  }

  std::unordered_set<std::string> special;  // texts of the special tokens

  // Appends the ids of a text without added tokens.
  void append(std::string_view text, bool first, detail::KnownWords& words, std::vector<int32_t>& out) const {
    if (!pre_tokenizer) return words.append(text, out);
    pre_tokenizer->split({text, first}, [&](detail::TextPart word) {
      if (!word.text.empty()) words.append(word.text, out);
    });
  }

  std::vector<int32_t> ids_of(std::string_view whole) const {
    const auto bad = detail::first_invalid_byte(whole);
    check(bad == std::string_view::npos, ErrorKind::Data, "tokenizer", "byte ", bad, " of the text is not UTF-8");
    std::vector<int32_t> out;
    detail::KnownWords words(*model);
    const auto token = [&](int32_t id) { out.push_back(id); };
    const auto plain = [&](std::string_view text, bool first) {
      std::string normalized;
      if (normalizer) {
        normalized = normalizer->normalized(std::string(text));
        text = normalized;
      }
      added.divide(
          text, /*normalized=*/true, [&](std::string_view part, bool begins) { append(part, first && begins, words, out); }, token);
    };
    added.divide(whole, /*normalized=*/false, plain, token);
    return out;
  }

  TokenIds composed(const std::vector<detail::TemplatePart>& parts, const std::vector<int32_t>& first,
                    const std::vector<int32_t>& second) const {
    TokenIds out;
    for (const auto& part : parts) {
      const auto& ids = !part.ids.empty() ? part.ids : (part.second ? second : first);
      out.ids.insert(out.ids.end(), ids.begin(), ids.end());
      out.types.insert(out.types.end(), ids.size(), part.type);
    }
    return out;
  }

  // Returns nullptr for an id without a token.
  const std::string* decoded_token(int64_t id) const {
    const auto* token = added.find(id);
    return token != nullptr ? &token->normalized : model->vocabulary().token_of(id);
  }
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::optional<std::filesystem::path> tokenizer_file(const std::filesystem::path& folder) {
  std::error_code error;
  for (const auto& name : tokenizer_names())
    if (std::filesystem::is_regular_file(folder / name, error)) return folder / name;
  return std::nullopt;
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  const auto found = is_folder ? tokenizer_file(path) : std::optional(path);
  check(found.has_value(), ErrorKind::Data, "tokenizer", path.string(), ": there is no tokenizer; allowed: ", join(tokenizer_names()));
  const auto& file = *found;
  if (!is_sentencepiece(file)) return parse(read_file(file, kLimits.max_bytes), file.string());
  detail::require_text_libraries("tokenizer");
  return Tokenizer(std::make_unique<Impl>(detail::read_sentencepiece(file, kLimits.max_bytes)));
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& source) {
  detail::require_text_libraries("tokenizer");
  const auto document = parse_json(json, source, kLimits);
  JsonFields fields(document, source);
  const auto place = [&](const std::string& key) { return source + ": " + key; };
  check(fields.text("version") == "1.0", ErrorKind::Data, "tokenizer", source, ": the version is '", fields.text("version"),
        "'; allowed: 1.0");
  // Truncation and padding are left to the caller, as in transformers.
  fields.unused("truncation");
  fields.unused("padding");
  detail::TokenizerParts out;
  if (const auto* part = fields.find("normalizer")) out.normalizer = detail::read_normalizer(*part, place("normalizer"));
  if (const auto* part = fields.find("pre_tokenizer")) out.pre_tokenizer = detail::read_pre_tokenizer(*part, place("pre_tokenizer"));
  out.model = detail::read_token_model(fields.at("model"), place("model"));
  if (const auto* list = fields.find("added_tokens"))
    out.added = AddedTokens(*list, out.model->vocabulary(), out.normalizer.get(), place("added_tokens"));
  if (const auto* part = fields.find("post_processor"))
    out.around = detail::read_post_processor(*part, place("post_processor"), out.model->vocabulary(), out.added);
  if (const auto* part = fields.find("decoder")) out.decoder = detail::read_decoder(*part, place("decoder"));
  fields.finish();
  return Tokenizer(std::make_unique<Impl>(std::move(out)));
}

TokenIds Tokenizer::encode(std::string_view text, bool special_tokens) const {
  const auto ids = impl_->ids_of(text);
  return special_tokens ? impl_->composed(impl_->around.single, ids, {}) : impl_->composed({{}}, ids, {});
}

TokenIds Tokenizer::encode_pair(std::string_view first, std::string_view second, bool special_tokens) const {
  const auto a = impl_->ids_of(first), b = impl_->ids_of(second);
  return special_tokens ? impl_->composed(impl_->around.pair, a, b) : impl_->composed({{}, {{}, true, 1}}, a, b);
}

std::string Tokenizer::decode(const std::vector<int64_t>& ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  for (const auto id : ids) {
    const auto* token = impl_->decoded_token(id);
    if (token != nullptr && !(skip_special_tokens && impl_->special.contains(*token))) tokens.push_back(*token);
  }
  std::string out;
  if (impl_->decoder) {
    for (const auto& text : impl_->decoder->decoded(std::move(tokens))) out += text;
    return out;
  }
  for (size_t i = 0; i < tokens.size(); ++i) out += (i == 0 ? "" : " ") + tokens[i];
  return out;
}

std::optional<std::string> Tokenizer::token(int64_t id) const {
  if (const auto* added = impl_->added.find(id)) return added->content;
  const auto* found = impl_->model->vocabulary().token_of(id);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

std::optional<int64_t> Tokenizer::id(std::string_view token) const {
  if (const auto* added = impl_->added.find(token)) return added->id;
  const auto found = impl_->model->vocabulary().id_of(token);
  return found == detail::kNoToken ? std::nullopt : std::optional<int64_t>(found);
}

bool Tokenizer::is_special(int64_t id) const {
  const auto* added = impl_->added.find(id);
  return added != nullptr && added->special;
}

int64_t Tokenizer::vocabulary_size() const {
  int64_t out = impl_->model->vocabulary().end();
  for (const auto& token : impl_->added.tokens()) out = std::max<int64_t>(out, token.id + 1);
  return out;
}

// Also decodes the ids whose text was already returned, because a decoder may treat the first token of a text differently.
std::string TextStream::behind_returned() const {
  const auto before = decode_({ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(returned_)});
  const auto all = decode_(ids_);
  return all.size() > before.size() ? all.substr(before.size()) : "";
}

std::string TextStream::next(int64_t id) {
  ids_.push_back(id);
  auto out = behind_returned();
  // An incomplete character is decoded as U+FFFD.
  if (out.empty() || out.ends_with("\xEF\xBF\xBD")) return "";
  // Keeps the new ids as context for the next ids. If the new ids alone have no text, as for a space at the beginning, the earlier ids stay
  // instead: with a context that has no text, the decoder would treat the next token like the first one of a text.
  std::vector<int64_t> last(ids_.begin() + static_cast<std::ptrdiff_t>(returned_), ids_.end());
  decode_(last).empty() ? ids_.resize(returned_) : ids_.swap(last);
  returned_ = ids_.size();
  return out;
}

std::string TextStream::rest() {
  auto out = behind_returned();
  returned_ = ids_.size();
  return out;
}

}  // namespace npu_train
