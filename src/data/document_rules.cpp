#include "data/document_rules.hpp"

#include <algorithm>
#include <limits>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/tokens.hpp"

namespace npu_train {
namespace {

constexpr const char* kRules = "documents";
constexpr int64_t kLargestToken = std::numeric_limits<int32_t>::max();

std::vector<int32_t> text_tokens(const std::string& text, const std::string& where, const DocumentRules& rules) {
  auto out = detail::ids_of_text(text, where, rules);
  if (out.empty()) return out;
  if (rules.begin_token >= 0) out.insert(out.begin(), static_cast<int32_t>(rules.begin_token));
  out.push_back(static_cast<int32_t>(rules.end_token));
  return out;
}

// A list may come from a tokenizer that adds the two tokens around a text; they are not added twice.
std::vector<int32_t> listed_tokens(const std::vector<Json>& list, const std::string& where, const DocumentRules& rules) {
  std::vector<int32_t> out;
  for (const auto& token : list) {
    const auto id = token.integer(where + ": tokens");
    check(id >= 0 && id <= kLargestToken, ErrorKind::Data, kRules, where, ": token ", out.size(), " is ", id, "; allowed: 0 to ",
          kLargestToken);
    out.push_back(static_cast<int32_t>(id));
  }
  if (out.empty()) return out;
  if (rules.begin_token >= 0 && out.front() != rules.begin_token) out.insert(out.begin(), static_cast<int32_t>(rules.begin_token));
  if (out.back() != rules.end_token) out.push_back(static_cast<int32_t>(rules.end_token));
  return out;
}

// Truncates a text if the rules allow it. Returns its fault, or "". Counts truncated and faulty texts.
std::string fault_of(std::vector<int32_t>& tokens, const DocumentRules& rules, DocumentCounts& counts) {
  if (tokens.empty()) {
    ++counts.empty;
    return "the text is empty";
  }
  for (size_t i = 0; rules.vocab_size > 0 && i < tokens.size(); ++i)
    if (tokens[i] >= rules.vocab_size) {
      ++counts.unknown_tokens;
      return "token " + std::to_string(i) + " is " + std::to_string(tokens[i]) + "; allowed: 0 to " + std::to_string(rules.vocab_size - 1) +
             " (data.vocab_size - 1)";
    }
  if (static_cast<int64_t>(tokens.size()) <= rules.context) return "";
  if (rules.long_documents == "truncate") {
    ++counts.truncated;
    tokens.resize(static_cast<size_t>(rules.context));
    tokens.back() = static_cast<int32_t>(rules.end_token);
    return "";
  }
  ++counts.long_ones;
  return "the text has " + std::to_string(tokens.size()) + " tokens; allowed: at most " + std::to_string(rules.context) +
         " (data.context); hint: data.long_documents=truncate";
}

}  // namespace

void DocumentRules::check() const {
  npu_train::check(long_documents == "error" || long_documents == "truncate" || long_documents == "split", ErrorKind::Usage, kRules,
                   "long_documents is '", long_documents, "'; allowed: error, truncate, split");
  npu_train::check(context >= 2 + (begin_token >= 0 ? 1 : 0), ErrorKind::Usage, kRules, "context is ", context,
                   "; a sample has at least one token and those around it");
  npu_train::check(end_token >= 0 && pad_token >= 0 && vocab_size >= 0 && std::max({begin_token, end_token, pad_token}) <= kLargestToken,
                   ErrorKind::Usage, kRules, "begin_token is ", begin_token, ", end_token ", end_token, ", pad_token ", pad_token,
                   " and vocab_size ", vocab_size, "; allowed: 0 to ", kLargestToken, ", and -1 for no begin_token");
  npu_train::check(vocab_size == 0 || std::max({begin_token, end_token, pad_token}) < vocab_size, ErrorKind::Usage, kRules, "begin_token ",
                   begin_token, ", end_token ", end_token, " or pad_token ", pad_token, " is not below vocab_size ", vocab_size);
}

DocumentCounts& DocumentCounts::operator+=(const DocumentCounts& other) {
  empty += other.empty, long_ones += other.long_ones, unknown_tokens += other.unknown_tokens;
  refused += other.refused, truncated += other.truncated, split += other.split, divided += other.divided;
  return *this;
}

std::string DocumentCounts::str(int64_t context) const {
  std::vector<std::string> out;
  const auto say = [&](int64_t count, const std::string& what) {
    if (count > 0) out.push_back(with_commas(count) + (count == 1 ? " document " : " documents ") + what);
  };
  say(empty, "omitted (empty)");
  say(long_ones, "omitted (longer than " + with_commas(context) + " tokens)");
  say(unknown_tokens, "omitted (tokens outside of the vocabulary)");
  say(refused, "omitted (the chat template makes no text, or none with known answers)");
  say(truncated, "truncated to " + with_commas(context) + " tokens");
  say(split, "split into samples of at most " + with_commas(context) + " tokens");
  say(divided, "divided into tokens at the beginning or end of an answer");
  return join(out);
}

namespace detail {

void check_rules_of_lines(const DocumentRules& rules) {
  rules.check();
  check(rules.long_documents != "split", ErrorKind::Usage, kRules,
        "long_documents: split is for files of tokens; allowed for .jsonl: error, truncate");
}

std::optional<QuestionTokens> tokens_of_line(const Json& line, const std::string& where, const DocumentRules& rules, bool prompts,
                                             DocumentCounts& counts) {
  const auto *text = line.find("text"), *list = line.find("tokens");
  if (prompts && text == nullptr && list == nullptr && line.find("prompt") != nullptr)
    return completion_of_line(line, where, rules, counts);
  if (prompts && text == nullptr && list == nullptr && line.find("messages") != nullptr) return chat_of_line(line, where, rules, counts);
  check(!prompts || (line.find("prompt") == nullptr && line.find("completion") == nullptr), ErrorKind::Data, kRules, where,
        ": the line has a ", line.find("prompt") != nullptr ? "prompt" : "completion",
        " next to a text or tokens, or alone; allowed: a prompt and "
        "a completion, a text, or tokens");
  check((text != nullptr) != (list != nullptr), ErrorKind::Data, kRules, where, ": ",
        text != nullptr ? "the line has a text and tokens" : "the line has no text", "; allowed: {\"text\": \"...\"}",
        prompts ? ", {\"prompt\": \"...\", \"completion\": \"...\"}, {\"messages\": [...]}" : "", " or {\"tokens\": [...]}");
  auto out = text != nullptr ? text_tokens(text->text(where + ": text"), where, rules)
                             : listed_tokens(list->items(where + ": tokens"), where, rules);
  const auto fault = fault_of(out, rules, counts);
  if (fault.empty()) return QuestionTokens{std::move(out), 0};
  check(rules.skip_bad, ErrorKind::Data, kRules, where, ": ", fault, "; hint: data.on_bad_sample=skip omits such texts and counts them");
  return std::nullopt;
}

std::vector<int32_t> caption_of_bytes(const std::string& text, const std::string& where, const DocumentRules& rules) {
  auto out = text_tokens(text, where, rules);
  DocumentCounts counts;
  const auto fault = fault_of(out, rules, counts);
  check(fault.empty(), ErrorKind::Data, kRules, where, ": ", fault);
  return out;
}

}  // namespace detail
}  // namespace npu_train
