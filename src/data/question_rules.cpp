#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "data/document_rules.hpp"
#include "data/text_tokenizer.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/data/tokens.hpp"

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
  const char *end, *all, *empty;
  int64_t added;  // tokens at the end that are not part of the text
};
constexpr WordsOfText kOfQuestions{"answer", "image, question and answer", "the answer is empty", 1},
    kOfPrompts{"completion", "prompt and completion", "the completion is empty", 1},
    kOfChats{"last message", "messages", "the last message is empty", 0}, kOfAnswers{"answers", "messages", "the answers are empty", 0};

// Returns the number of tokens that count in the loss.
int64_t counted_tokens(const QuestionTokens& text) {
  auto out = static_cast<int64_t>(text.tokens.size()) - text.prompt;
  for (const auto& [begin, end] : text.between) out -= end - begin;
  return out;
}

void cut_to_context(QuestionTokens& text, int64_t context, int64_t end_token) {
  text.tokens.resize(static_cast<size_t>(context));
  text.tokens.back() = static_cast<int32_t>(end_token);
  for (auto& [begin, end] : text.between) begin = std::min(begin, context), end = std::min(end, context);
}

// Truncates the answers if the rules allow it. Returns the fault of the text, or "". Counts truncated and faulty texts.
std::string fault_of_answer(QuestionTokens& text, const WordsOfText& words, const DocumentRules& rules, DocumentCounts& counts) {
  const auto size = static_cast<int64_t>(text.tokens.size());
  if (counted_tokens(text) == words.added) {
    ++counts.empty;
    return words.empty;
  }
  for (const auto id : text.tokens)
    if (rules.vocab_size > 0 && id >= rules.vocab_size) {
      ++counts.unknown_tokens;
      return "a token is " + std::to_string(id) + "; allowed: 0 to " + std::to_string(rules.vocab_size - 1) + " (data.vocab_size - 1)";
    }
  if (size <= rules.context) return "";
  if (rules.long_documents == "truncate" && text.prompt + 2 <= rules.context) {
    ++counts.truncated;
    cut_to_context(text, rules.context, rules.end_token);
    return "";
  }
  ++counts.long_ones;
  return str_cat(words.all, " have ", size, " tokens, ", text.prompt, " of them before the ", words.end, "; allowed: at most ",
                 rules.context, " (data.context)",
                 rules.long_documents == "truncate" ? "" : str_cat("; hint: data.long_documents=truncate shortens the ", words.end));
}

// Returns the text, or nullopt if it has a fault and the rules omit such texts.
std::optional<QuestionTokens> without_fault(QuestionTokens text, const WordsOfText& words, const char* data, const std::string& where,
                                            const DocumentRules& rules, DocumentCounts& counts) {
  const auto fault = fault_of_answer(text, words, rules, counts);
  if (fault.empty()) return text;
  check(rules.skip_bad, ErrorKind::Data, data, where, ": ", fault, "; hint: data.on_bad_sample=skip omits such lines and counts them");
  return std::nullopt;
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
  auto text =
      about_image(ids_of_member(line, "question", where, rules), ids_of_member(line, "answer", where, rules), where, rules, questions);
  return without_fault(std::move(text), kOfQuestions, kQuestions, where, rules, counts);
}

std::optional<QuestionTokens> completion_of_line(const Json& line, const std::string& where, const DocumentRules& rules,
                                                 DocumentCounts& counts) {
  const auto prompt = ids_of_member(line, "prompt", where, rules);
  const bool begins = !prompt.empty() && prompt.front() == rules.begin_token;
  auto text = joined({begins ? std::vector<int32_t>{} : if_given(rules.begin_token), prompt},
                     ids_of_member(line, "completion", where, rules), rules);
  return without_fault(std::move(text), kOfPrompts, kPrompts, where, rules, counts);
}

std::vector<int32_t> ids_of_text(const std::string& text, const std::string& where, const DocumentRules& rules) {
  if (rules.texts != nullptr) return rules.texts->ids(text);
  auto bytes = document_bytes(text, where);
  if (!bytes.empty()) bytes.pop_back();  // without the end token
  std::vector<int32_t> out;
  for (const char c : bytes) out.push_back(static_cast<unsigned char>(c));
  return out;
}

namespace {

// Error(Data) if nothing of the chat would count in the loss.
void check_answers(const Json& messages, bool all, const std::string& where) {
  const auto& list = messages.items(where + ": messages");
  const auto of_assistant = [&](const Json& message) { return message.at("role", where).text(where) == "assistant"; };
  if (all)
    check(std::any_of(list.begin(), list.end(), of_assistant), ErrorKind::Data, kPrompts, where,
          ": no message is one of the assistant, which are those that the loss counts");
  else
    check(!list.empty() && of_assistant(list.back()), ErrorKind::Data, kPrompts, where,
          ": the last message is not one of the assistant, which is the one that the loss counts");
}

// Returns the tokens of a chat. If the template gives no text for the chat, or one with unknown answers, throws Error(Data), or with
// skip_bad counts the chat and returns nullopt.
std::optional<ChatTokens> chat_with_answers(const Json& messages, const std::string& where, const DocumentRules& rules,
                                            DocumentCounts& counts) {
  rules.texts->chat();  // outside of `try`: an error of the template is not one of the chat
  try {
    return rules.texts->chat_tokens(messages, rules.all_answers ? Answers::All : Answers::Last, where);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Data && rules.skip_bad) {
      ++counts.refused;
      return std::nullopt;
    }
    if (e.message().starts_with(where)) throw;
    throw Error(e.kind(), e.where(), str_cat(where, ": ", e.message()), "", std::current_exception());
  }
}

QuestionTokens counted_answers(const ChatTokens& chat) {
  const auto size = static_cast<int64_t>(chat.ids.size());
  QuestionTokens out{{chat.ids.begin(), chat.ids.end()}, size};
  std::vector<std::pair<int64_t, int64_t>> answers;  // non-empty answers, so that a truncated text has a token of the first one
  std::copy_if(chat.answers.begin(), chat.answers.end(), std::back_inserter(answers), [](const auto& a) { return a.first < a.second; });
  if (!answers.empty()) out.prompt = answers.front().first;
  for (size_t i = 0; i < answers.size(); ++i)
    out.between.emplace_back(answers[i].second, i + 1 < answers.size() ? answers[i + 1].first : size);
  return out;
}

}  // namespace

// As in TRL, the last answer is what follows the text of the earlier messages with a generation prompt.
std::optional<QuestionTokens> chat_of_line(const Json& line, const std::string& where, const DocumentRules& rules, DocumentCounts& counts) {
  check(rules.texts != nullptr, ErrorKind::Data, kPrompts, where, ": messages need a chat template; hint: data.tokenizer=FOLDER");
  const auto& messages = line.at("messages", where);
  check_answers(messages, rules.all_answers, where);
  const auto chat = chat_with_answers(messages, where, rules, counts);
  if (!chat) return std::nullopt;
  auto out = without_fault(counted_answers(*chat), rules.all_answers ? kOfAnswers : kOfChats, kPrompts, where, rules, counts);
  counts.divided += out && chat->divided ? 1 : 0;
  return out;
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
