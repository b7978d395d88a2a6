#include <algorithm>

#include "data/document_rules.hpp"
#include "data/text_tokenizer.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/data/token_text.hpp"

namespace npu_train {
namespace {

constexpr const char *kQuestions = "image_questions", *kPrompts = "documents";
constexpr int64_t kLargestId = (int64_t{1} << 31) - 1;

// Returns the ids of a member that is a text or a list of ids.
std::vector<int32_t> ids_of_member(const Json& line, const char* key, const std::string& where, const DocumentRules& rules) {
  const Json& value = line.at(key, where);
  const auto place = where + ": " + key;
  if (!value.is_array()) return detail::ids_of_text(value.text(place), place, rules);
  std::vector<int32_t> out;
  for (const auto& token : value.items(place)) {
    const auto id = token.integer(place);
    check(id >= 0 && id <= kLargestId, ErrorKind::Data, kQuestions, place, ": token ", out.size(), " is ", id, "; allowed: 0 to ",
          kLargestId);
    out.push_back(static_cast<int32_t>(id));
  }
  return out;
}

// Joins `parts` before the answer with the answer.
QuestionTokens joined(std::initializer_list<std::vector<int32_t>> parts, const std::vector<int32_t>& answer, const DocumentRules& rules) {
  QuestionTokens out;
  for (const auto& part : parts) out.tokens.insert(out.tokens.end(), part.begin(), part.end());
  out.prompt = static_cast<int64_t>(out.tokens.size());
  out.tokens.insert(out.tokens.end(), answer.begin(), answer.end());
  out.tokens.push_back(static_cast<int32_t>(rules.end_token));
  return out;
}

std::vector<int32_t> if_given(int64_t token) {
  return token >= 0 ? std::vector<int32_t>{static_cast<int32_t>(token)} : std::vector<int32_t>{};
}

QuestionTokens about_image(const std::vector<int32_t>& question, const std::vector<int32_t>& answer, const std::string& where,
                           const DocumentRules& rules, const QuestionOptions& o) {
  const auto image = static_cast<int32_t>(o.image_token);
  for (const auto* part : {&question, &answer})
    check(std::find(part->begin(), part->end(), image) == part->end(), ErrorKind::Data, kQuestions, where, ": the text has the token ",
          o.image_token, ", which is that of images (data.image_token)");
  const std::vector<int32_t> images(static_cast<size_t>(o.image_tokens), image);
  return joined({if_given(rules.begin_token), images, question, if_given(o.separator)}, answer, rules);
}

// Words for messages: the end of a text, which counts in the loss, and the complete text.
struct WordsOfText {
  const char *end, *all;
  int64_t added;  // tokens at the end that are not of the text
};
constexpr WordsOfText kOfQuestions{"answer", "image, question and answer", 1}, kOfPrompts{"completion", "prompt and completion", 1},
    kOfChats{"last message", "messages", 0};

// Truncates the answer if the rules allow it. Returns the fault of the text, or "". Counts both.
std::string fault_of_answer(QuestionTokens& text, const WordsOfText& words, const DocumentRules& rules, DocumentCounts& counts) {
  const auto size = static_cast<int64_t>(text.tokens.size());
  if (size == text.prompt + words.added) {
    ++counts.empty;
    return str_cat("the ", words.end, " is empty");
  }
  for (const auto id : text.tokens)
    if (rules.vocab_size > 0 && id >= rules.vocab_size) {
      ++counts.unknown_tokens;
      return "a token is " + std::to_string(id) + "; allowed: 0 to " + std::to_string(rules.vocab_size - 1) + " (data.vocab_size - 1)";
    }
  if (size <= rules.context) return "";
  if (rules.long_documents == "truncate" && text.prompt + 2 <= rules.context) {
    ++counts.truncated;
    text.tokens.resize(static_cast<size_t>(rules.context));
    text.tokens.back() = static_cast<int32_t>(rules.end_token);
    return "";
  }
  ++counts.long_ones;
  return str_cat(words.all, " have ", size, " tokens, ", text.prompt, " of them before the ", words.end, "; allowed: at most ",
                 rules.context, " (data.context)",
                 rules.long_documents == "truncate" ? "" : str_cat("; hint: data.long_documents=truncate shortens the ", words.end));
}

}  // namespace

void QuestionOptions::check() const {
  npu_train::check(image_tokens >= 1 && image_token >= 0 && image_token <= kLargestId && separator <= kLargestId, ErrorKind::Usage,
                   kQuestions, "image_token is ", image_token, ", image_tokens ", image_tokens, " and separator ", separator,
                   "; allowed: 0 to ", kLargestId, ", at least 1, and at least -1");
  npu_train::check(separator != image_token, ErrorKind::Usage, kQuestions, "separator is the image_token, ", image_token);
}

namespace detail {

std::optional<QuestionTokens> question_of_line(const Json& line, const std::string& where, const DocumentRules& rules,
                                               const QuestionOptions& questions, DocumentCounts& counts) {
  auto out =
      about_image(ids_of_member(line, "question", where, rules), ids_of_member(line, "answer", where, rules), where, rules, questions);
  const auto fault = fault_of_answer(out, kOfQuestions, rules, counts);
  if (fault.empty()) return out;
  check(rules.skip_bad, ErrorKind::Data, kQuestions, where, ": ", fault,
        "; hint: data.on_bad_sample=skip omits such lines and counts them");
  return std::nullopt;
}

std::optional<QuestionTokens> completion_of_line(const Json& line, const std::string& where, const DocumentRules& rules,
                                                 DocumentCounts& counts) {
  const auto prompt = ids_of_member(line, "prompt", where, rules);
  const bool begins = !prompt.empty() && prompt.front() == rules.begin_token;
  auto out = joined({begins ? std::vector<int32_t>{} : if_given(rules.begin_token), prompt},
                    ids_of_member(line, "completion", where, rules), rules);
  const auto fault = fault_of_answer(out, kOfPrompts, rules, counts);
  if (fault.empty()) return out;
  check(rules.skip_bad, ErrorKind::Data, kPrompts, where, ": ", fault, "; hint: data.on_bad_sample=skip omits such lines and counts them");
  return std::nullopt;
}

std::vector<int32_t> ids_of_text(const std::string& text, const std::string& where, const DocumentRules& rules) {
  if (rules.texts != nullptr) return rules.texts->ids(text);
  auto bytes = document_bytes(text, where);
  if (!bytes.empty()) bytes.pop_back();  // without the end token
  std::vector<int32_t> out;
  for (const char c : bytes) out.push_back(static_cast<unsigned char>(c));
  return out;
}

// As in TRL, the prompt is the text up to where the last answer begins, and the completion the rest of the complete text.
std::optional<QuestionTokens> chat_of_line(const Json& line, const std::string& where, const DocumentRules& rules, DocumentCounts& counts) {
  check(rules.texts != nullptr, ErrorKind::Data, kPrompts, where, ": messages need a chat template; hint: data.tokenizer=FOLDER");
  auto messages = line.at("messages", where).items(where + ": messages");
  check(!messages.empty() && messages.back().at("role", where).text(where) == "assistant", ErrorKind::Data, kPrompts, where,
        ": the last message is not one of the assistant, which is the one that the loss counts");
  const auto& chat = rules.texts->chat();
  const auto whole = chat.text(Json::array(messages));
  messages.pop_back();
  const auto prompt = chat.text(Json::array(std::move(messages)), /*generation_prompt=*/true);
  check(whole.starts_with(prompt), ErrorKind::Data, kPrompts, where,
        ": the chat template writes the earlier messages differently when the answer is missing, so that it has no beginning");
  QuestionTokens out{rules.texts->ids(prompt), 0};
  out.prompt = static_cast<int64_t>(out.tokens.size());
  const auto answer = rules.texts->ids(whole.substr(prompt.size()));
  out.tokens.insert(out.tokens.end(), answer.begin(), answer.end());
  const auto fault = fault_of_answer(out, kOfChats, rules, counts);
  if (fault.empty()) return out;
  check(rules.skip_bad, ErrorKind::Data, kPrompts, where, ": ", fault, "; hint: data.on_bad_sample=skip omits such lines and counts them");
  return std::nullopt;
}

QuestionTokens question_of_bytes(const std::string& question, const std::string& answer, const std::string& where,
                                 const DocumentRules& rules, const QuestionOptions& questions) {
  auto out = about_image(ids_of_text(question, where, rules), ids_of_text(answer, where, rules), where, rules, questions);
  DocumentCounts counts;
  const auto fault = fault_of_answer(out, kOfQuestions, rules, counts);
  check(fault.empty(), ErrorKind::Data, kQuestions, where, ": ", fault);
  return out;
}

}  // namespace detail
}  // namespace npu_train
