// The model Unigram of tokenizer.json, which divides a word into the tokens whose scores have the largest sum.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "text/best_path.hpp"
#include "text/json_fields.hpp"
#include "text/token_model.hpp"

namespace npu_train::detail {
namespace {

constexpr double kUnknownPenalty = 10;  // as in SentencePiece

/// Returns the value that the package tokenizers reads for a score. Requires that the file has the score's shortest digits, as Rust and
/// Python write them. The package's JSON reader (serde_json without float_roundtrip) reads the digits as an integer, and multiplies or
/// divides that integer once by a power of ten; 8 % of the scores with 17 digits are therefore wrong in the last bit. That bit decides, for
/// example, between the divisions "a" "bb" and "bb" "a", whose sums differ only by rounding.
double as_tokenizers_reads(double score) {
  char text[32];
  const char* const end = std::to_chars(text, text + sizeof text, std::abs(score), std::chars_format::scientific).ptr;
  const char* const exponent = std::find(static_cast<const char*>(text), end, 'e');
  int power = std::atoi(std::string(exponent + 1, end).c_str());
  uint64_t digits = 0;
  for (const char* at = text; at != exponent; ++at) {
    if (*at == '.') continue;
    digits = digits * 10 + static_cast<uint64_t>(*at - '0');
    power -= at > text ? 1 : 0;
  }
  if (std::abs(power) > std::numeric_limits<double>::max_exponent10) return score;
  const double scale = decimal_number(str_cat("1e", std::abs(power))).value();
  const double magnitude = power < 0 ? static_cast<double>(digits) / scale : static_cast<double>(digits) * scale;
  return std::copysign(magnitude, score);
}

class Unigram final : public TokenModel {
 public:
  Unigram(const Json& json, const std::string& where) {
    JsonFields fields(json, where);
    fields.unused("type");
    std::vector<std::pair<std::string_view, int32_t>> tokens;
    const auto& list = fields.at("vocab").items(fields.where("vocab"));
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < list.size(); ++i) {
      const auto place = str_cat(fields.where("vocab"), "[", i, "]");
      const auto& pair = list[i].items(place);
      check(pair.size() == 2, ErrorKind::Data, "tokenizer", place, ": ", pair.size(), " values; allowed: a token and its score");
      const double score = pair[1].number(place);
      check(std::isfinite(score), ErrorKind::Data, "tokenizer", place, ": the score is not a finite number");
      scores_.push_back(as_tokenizers_reads(score));
      least = std::min(least, scores_.back());
      vocabulary_.add(pair[0].text(place), static_cast<int64_t>(i), place);
      tokens.emplace_back(*vocabulary_.token_of(static_cast<int64_t>(i)), static_cast<int32_t>(i));
    }
    if (fields.find("unk_id") != nullptr)
      unknown_.id = static_cast<int32_t>(fields.integer("unk_id", 0, static_cast<int64_t>(list.size()) - 1));
    if (fields.flag("byte_fallback", false)) bytes_ = ByteTokens(vocabulary_);
    fields.finish();
    unknown_.score = least - kUnknownPenalty;
    trie_ = TokenTrie(std::move(tokens));
  }

  void encode(std::string_view word, std::vector<int32_t>& out) const override {
    constexpr auto kNone = std::string_view::npos;
    size_t unknown = kNone;  // start of successive unknown characters, which are one token
    const auto finish = [&](size_t end) {
      if (unknown != kNone) append_unknown(word.substr(unknown, end - unknown), out);
      unknown = kNone;
    };
    const auto score_of = [&](int32_t id, size_t) { return scores_[static_cast<size_t>(id)]; };
    best_path<double>(word, trie_, unknown_, score_of, [&](size_t begin, size_t, int32_t id) {
      if (id == unknown_.id) {
        unknown = std::min(unknown, begin);
      } else {
        finish(begin);
        out.push_back(id);
      }
    });
    finish(word.size());
  }

 private:
  void append_unknown(std::string_view text, std::vector<int32_t>& out) const {
    const auto id = vocabulary_.id_of(text);
    if (id != kNoToken) return out.push_back(id);
    if (!bytes_.append(text, out)) out.push_back(unknown_.id);
  }

  std::vector<double> scores_;
  UnknownToken unknown_;
  ByteTokens bytes_;
  TokenTrie trie_;
};

}  // namespace

std::unique_ptr<TokenModel> read_unigram(const Json& json, const std::string& where) { return std::make_unique<Unigram>(json, where); }

}  // namespace npu_train::detail
