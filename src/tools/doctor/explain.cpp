#include "npu_train/tools/doctor/explain.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/doctor/checks.hpp"
#include "tools/doctor/known_problems.hpp"
#include "tools/doctor/parse.hpp"

namespace npu_train {
namespace {

constexpr size_t kLongestQuestion = 64 * 1024;

void add_once(std::vector<KnownProblem>& out, const KnownProblem& problem) {
  if (std::none_of(out.begin(), out.end(), [&](const KnownProblem& a) { return a.name == problem.name; })) out.push_back(problem);
}

// Returns "507018" for "0x7BC8A"; other text unchanged.
std::string decimal(const std::string& text) {
  if (!text.starts_with("0x")) return text;
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), number, 16);
  return error == std::errc() && end == text.data() + text.size() ? std::to_string(number) : text;
}

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

// Normalises Chinese text in the same way as the table: no blanks next to Chinese characters, half-width brackets and colons.
std::string plain_chinese(std::string text) {
  for (const auto& [wide, narrow] : {std::pair{"\uFF08", "("}, {"\uFF09", ")"}, {"\uFF1A", ":"}, {"\uFF0C", ","}})
    for (size_t at = 0; (at = text.find(wide, at)) != std::string::npos;) text.replace(at, std::string(wide).size(), narrow);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto next = text.find_first_not_of(' ', i);
    const bool beside = (!out.empty() && !is_ascii(out.back())) || (next != std::string::npos && !is_ascii(text[next]));
    if (text[i] != ' ' || !beside) out += text[i];
  }
  return out;
}

// Removes Chinese words of frequency and degree, and unifies the words for "without".
std::string without_fillers(std::string text) {
  static const std::pair<const char*, const char*> words[] = {
      {"总是", ""}, {"经常", ""},   {"突然", ""}, {"特别", ""}, {"非常", ""}, {"一直", ""}, {"出现", ""}, {"发生", ""},
      {"我的", ""}, {"为什么", ""}, {"怎么", ""}, {"的", ""},   {"了", ""},   {"很", ""},   {"太", ""},   {"没有", "无"}};
  for (const auto& [word, instead] : words)
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos;) text.replace(at, std::string_view(word).size(), instead);
  return text;
}

// Replaces Chinese words that occur in many questions by a blank.
std::string without_common(std::string text) {
  for (const std::string_view word :
       {"失败", "错误", "报错", "异常", "问题", "训练", "模型", "程序", "无法", "不能", "运行", "安装", "编译", "加载"})
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos;) text.replace(at, word.size(), " ");
  return text;
}

// Returns an approximate stem for comparisons: "diverg" for "diverges" and "diverged".
std::string root_of(const std::string& word) {
  for (const std::string_view end : {"ing", "ed", "es", "s", "e"})
    if (word.size() >= end.size() + 4 && word.ends_with(end)) return word.substr(0, word.size() - end.size());
  return word;
}

// Returns the length in bytes of the UTF-8 character at `at`.
size_t bytes_of_character(const std::string& text, size_t at) {
  size_t end = at + 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  return end - at;
}

// Returns the distinctive words: words of at least two letters, and pairs of Chinese characters, which are written without blanks. A
// negation changes the next word: "no_overflow".
std::set<std::string> telling_words(const std::string& text) {
  static const std::set<std::string> empty = {"the", "is",  "are",  "an",   "on",  "of",   "it",   "in",   "my", "to", "and",
                                              "at",  "was", "with", "does", "why", "for",  "have", "be",   "by", "we", "has",
                                              "or",  "had", "when", "from", "but", "this", "that", "than", "any"};
  static const std::set<std::string> negations = {"no", "not", "without", "never"};
  std::set<std::string> out;
  std::string word, before;  // before: the previous Chinese character
  auto lower = to_lower(text) + " ";
  for (size_t at = 0; (at = lower.find("n't", at)) != std::string::npos;) lower.replace(at, 3, " not");
  bool negated = false;
  const auto add = [&](const std::string& one) {
    if (negations.contains(one)) {
      negated = true;
    } else if (one.size() >= 2 && !empty.contains(one)) {
      out.insert((std::exchange(negated, false) ? "no_" : "") + root_of(one));
    }
  };
  for (size_t i = 0; i < lower.size();) {
    const auto length = bytes_of_character(lower, i);
    const auto character = lower.substr(i, length);
    i += length;
    if (is_ascii(character[0]) && (std::isalnum(static_cast<unsigned char>(character[0])) != 0 || character[0] == '_')) {
      word += character;
    } else {
      add(word);
      word.clear();
      negated &= character == " ";
    }
    if (!is_ascii(character[0]) && !before.empty()) out.insert(before + character);
    before = is_ascii(character[0]) ? "" : character;
  }
  return out;
}

struct Vocabulary {
  const KnownProblem* problem;
  std::set<std::string> named, words;  // named: words of its name and patterns; words: also those of its meaning
};

// Finds the problems that have words in common with the question. A word has more weight the fewer problems contain it, and most weight if
// none does. At least `kEnough` of the total weight must be shared, since a wrong answer is worse than none.
std::vector<KnownProblem> by_words(const std::string& question) {
  constexpr double kEnough = 0.6, kOfMeaning = 0.8;
  std::vector<Vocabulary> all;
  std::map<std::string, double> problems_with;
  for (const auto& problem : known_problems()) {
    auto named = telling_words(without_common(problem.name + " " + join(problem.patterns, " | ")));
    auto words = telling_words(problem.meaning);
    words.insert(named.begin(), named.end());
    for (const auto& word : words) ++problems_with[word];
    all.push_back({&problem, std::move(named), std::move(words)});
  }
  const auto weight = [&](const std::string& word) {
    const auto found = problems_with.find(word);
    return std::log1p(static_cast<double>(all.size()) / (found == problems_with.end() ? 0.5 : found->second));
  };
  double asked = 0, most = kEnough;
  std::vector<KnownProblem> best;
  const auto words = telling_words(without_common(question));
  for (const auto& word : telling_words(question)) asked += weight(word);  // common words count, too, since they change the question
  for (const auto& one : all) {
    double shared = 0;
    for (const auto& word : words)
      if (one.words.contains(word)) shared += weight(word) * (one.named.contains(word) ? 1 : kOfMeaning);
    if (asked == 0 || shared / asked < most) continue;
    if (shared / asked > most) best.clear();
    most = shared / asked;
    best.push_back(*one.problem);
  }
  // several equally near problems are an answer only if all words of the question are rare
  constexpr size_t kFew = 3;
  const bool rare = std::all_of(words.begin(), words.end(), [&](const auto& word) { return problems_with[word] <= kFew; });
  return best.size() == 1 || (rare && best.size() <= kFew) ? best : std::vector<KnownProblem>();
}

// Finds the problem of this name. If there is none, finds all problems whose meaning, or a clause of it, is this text.
std::vector<KnownProblem> by_own_text(const std::string& question) {
  for (const auto& problem : known_problems())
    if (to_lower(problem.name) == question) return {problem};
  std::vector<KnownProblem> out;
  for (const auto& problem : known_problems()) {
    const auto meaning = plain_chinese(to_lower(problem.meaning));
    auto clauses = detail::split(meaning, ':');
    clauses.push_back(meaning);
    if (std::any_of(clauses.begin(), clauses.end(), [&](const auto& clause) { return detail::trimmed(clause) == question; }))
      out.push_back(problem);
  }
  return out;
}

[[noreturn]] void not_known(const std::string& text) {
  std::vector<std::string> symptoms, names;
  for (const auto& problem : known_problems()) {
    names.push_back(problem.name);
    if (!problem.is_code) symptoms.push_back(problem.name);
  }
  const auto near = nearest_name(text, names);
  throw Error(ErrorKind::Usage, "explain",
              "'" + detail::shortened(text, 80) + "' is unknown; known are " + std::to_string(names.size() - symptoms.size()) +
                  " codes (507018, EI0006, ERR00100) and the symptoms " + join(symptoms),
              near.empty() ? "give the complete line of the log, or pipe the log: npu_tool doctor --explain - < train.log"
                           : "did you mean " + near + "?");
}

// Returns the fields of a problem; `name`: the displayed name.
std::vector<ReportField> fields_of(const KnownProblem& a, const std::string& name) {
  return {shown("mark", ""),        both("name", {a.name, name}), both("meaning", a.meaning), data("layer", a.layer),
          both("causes", a.causes), both("fix", a.fix),           data("rank", a.rank)};
}

}  // namespace

std::vector<KnownProblem> explain(const std::string& text) {
  const auto question = decimal(plain_chinese(to_lower(detail::trimmed(text.substr(0, kLongestQuestion)))));
  check(!question.empty(), ErrorKind::Usage, "explain", "there is no question; give a code (507018) or a symptom ('out of memory')");
  auto out = by_own_text(question);
  if (!out.empty()) return out;
  const auto plain = without_fillers(question);
  bool negated = false;
  for (const auto& text_of : {question, plain})
    if (out.empty())
      detail::find_known_problems(
          text_of, false,
          [&](const detail::Hit& hit) {
            if (hit.problem != nullptr) add_once(out, *hit.problem);
          },
          &negated);
  // sorts causes before problems that only wrap them
  std::stable_sort(out.begin(), out.end(), [](const KnownProblem& a, const KnownProblem& b) { return a.rank < b.rank; });
  if (!out.empty()) return out;
  for (const auto& word : detail::words(question))
    if (auto family = detail::family_of(word)) return {*family};
  if (!negated) out = by_words(plain);
  if (out.empty()) not_known(text);
  return out;
}

Report report_of(const LogReport& log) {
  const auto number = [](uint64_t value) { return with_commas(static_cast<int64_t>(value)); };
  Report out("Explanation of a log", Json::object({{"lines", static_cast<int64_t>(log.lines)},
                                                   {"bytes", static_cast<int64_t>(log.bytes)},
                                                   {"error_lines", static_cast<int64_t>(log.error_lines)},
                                                   {"long_lines", static_cast<int64_t>(log.long_lines)},
                                                   {"first_error_line", static_cast<int64_t>(log.first_error_line)},
                                                   {"first_error", log.first_error},
                                                   {"compressed", log.compressed}}));
  if (log.lines == 0 && !log.compressed)
    out.say("the log is empty");
  else
    out.say(number(log.lines) + (log.lines == 1 ? " line, " : " lines, ") + human_bytes(static_cast<double>(log.bytes)) + ", " +
            number(log.error_lines) + " of them report an error");
  if (log.compressed) out.say("the log is compressed: unpack it first, as in zcat train.log.gz | npu_tool doctor --explain -");
  if (log.long_lines > 0) out.say(number(log.long_lines) + " lines are longer than 64 KiB and were read in pieces");
  if (log.sightings.empty() && log.lines > 0 && !log.compressed) {
    out.say("no known code or symptom");
    if (log.first_error_line > 0)
      out.say("the first line that reports an error is line " + std::to_string(log.first_error_line) + ": " + log.first_error);
  }
  ReportTable found{.layout = ReportTable::Layout::List, .apart = true};
  for (const auto& s : log.sightings) {
    const auto times = s.count == 1 ? std::string("once") : number(s.count) + " times";
    auto row = fields_of(s.problem, std::to_string(found.rows.size() + 1) + ". " + s.problem.name +
                                        (s.shown == to_lower(s.problem.name) ? "" : " (" + s.shown + ")"));
    row.push_back(shown("seen", times + ", first in line " + std::to_string(s.first_line) + ": " + s.excerpt));
    for (const auto& [key, value] : {std::pair<const char*, Json>{"shown", s.shown},
                                     {"count", static_cast<int64_t>(s.count)},
                                     {"first_line", static_cast<int64_t>(s.first_line)},
                                     {"excerpt", s.excerpt}})
      row.push_back(data(key, value));
    found.add(std::move(row));
  }
  out.table("found", std::move(found));
  return out;
}

Report report_of(const std::vector<KnownProblem>& problems) {
  Report out("Explanation");
  ReportTable found{.layout = ReportTable::Layout::List, .apart = true};
  for (const auto& a : problems) found.add(fields_of(a, a.name + " (" + a.layer + ")"));
  out.table("found", std::move(found));
  return out;
}

}  // namespace npu_train
