#include "npu_train/tools/doctor/explain.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/doctor/finding.hpp"
#include "tools/doctor/known_problems.hpp"
#include "tools/doctor/parse.hpp"

namespace npu_train {
namespace {

constexpr size_t kLongestQuestion = 64 * 1024;

void add_once(std::vector<KnownProblem>& out, const KnownProblem& problem) {
  if (std::none_of(out.begin(), out.end(), [&](const KnownProblem& a) { return a.name == problem.name; })) out.push_back(problem);
}

// "0x7BC8A" as "507018"; the text itself otherwise.
std::string decimal(const std::string& text) {
  if (!text.starts_with("0x")) return text;
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), number, 16);
  return error == std::errc() && end == text.data() + text.size() ? std::to_string(number) : text;
}

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

// Chinese as the table writes it: no blanks next to its characters, brackets and colons of half width.
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

// Words of at least two letters that say something, and single characters of Chinese, which writes words without blanks.
std::set<std::string> telling_words(const std::string& text) {
  static const std::set<std::string> empty = {"the", "is", "are", "not", "no", "an",  "on",   "of",   "it",
                                              "in",  "my", "to",  "and", "at", "was", "with", "does", "why"};
  std::set<std::string> out;
  std::string word;
  const auto lower = to_lower(text) + " ";
  for (size_t i = 0; i < lower.size(); ++i) {
    const char c = lower[i];
    if (!is_ascii(c)) {
      auto end = i + 1;
      while (end < lower.size() && (static_cast<unsigned char>(lower[end]) & 0xC0) == 0x80) ++end;
      out.insert(lower.substr(i, end - i));
      i = end - 1;
    }
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      word += c;
    } else {
      if (word.size() >= 2 && !empty.contains(word)) out.insert(word);
      word.clear();
    }
  }
  return out;
}

// Symptoms by the words that they share with the question: those that share the most, at least half of them.
std::vector<KnownProblem> by_words(const std::string& question) {
  const auto asked = telling_words(question);
  std::vector<KnownProblem> best;
  size_t most = 0;
  for (const auto& problem : known_problems()) {
    if (problem.is_code) continue;
    const auto known = telling_words(problem.name + " " + join(problem.patterns, " ") + " " + problem.meaning);
    const auto shared = static_cast<size_t>(std::count_if(asked.begin(), asked.end(), [&](const auto& w) { return known.contains(w); }));
    if (shared == 0 || shared * 2 < asked.size() || shared < most) continue;
    if (shared > most) best.clear();
    most = shared;
    best.push_back(problem);
  }
  return best.size() <= 3 ? best : std::vector<KnownProblem>();
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

std::string problem_text(const KnownProblem& a, size_t width) {
  std::string out = wrapped(a.name + " (" + a.layer + "): " + a.meaning, "", "  ", width);
  if (!a.causes.empty()) out += wrapped(a.causes, "  causes: ", "          ", width);
  return out + wrapped(a.fix, "  fix:    ", "          ", width);
}

Json problem_json(const KnownProblem& a) {
  return Json::object(
      {{"name", a.name}, {"layer", a.layer}, {"meaning", a.meaning}, {"causes", a.causes}, {"fix", a.fix}, {"rank", a.rank}});
}

}  // namespace

std::vector<KnownProblem> explain(const std::string& text) {
  const auto question = decimal(plain_chinese(to_lower(detail::trimmed(text.substr(0, kLongestQuestion)))));
  check(!question.empty(), ErrorKind::Usage, "explain", "there is no question; give a code (507018) or a symptom ('out of memory')");
  std::vector<KnownProblem> out;
  for (const auto& problem : known_problems())
    if (to_lower(problem.name) == question) return {problem};
  detail::find_known_problems(question, false, [&](const detail::Hit& hit) {
    if (hit.problem != nullptr) add_once(out, *hit.problem);
  });
  // what names a cause before what wraps it
  std::stable_sort(out.begin(), out.end(), [](const KnownProblem& a, const KnownProblem& b) { return a.rank < b.rank; });
  if (!out.empty()) return out;
  for (const auto& word : detail::words(question))
    if (auto family = detail::family_of(word)) return {*family};
  out = by_words(question);
  if (out.empty()) not_known(text);
  return out;
}

std::string LogReport::str(size_t width) const {
  std::string out = with_commas(static_cast<int64_t>(lines)) + (lines == 1 ? " line, " : " lines, ") +
                    human_bytes(static_cast<double>(bytes)) + ", " + with_commas(static_cast<int64_t>(error_lines)) +
                    " of them report an error\n";
  if (compressed) return out + "the log is compressed: unpack it first, as in zcat train.log.gz | npu_tool doctor --explain -\n";
  if (lines == 0) return "the log is empty\n";
  if (long_lines > 0) out += with_commas(static_cast<int64_t>(long_lines)) + " lines are longer than 64 KiB and were read in pieces\n";
  if (sightings.empty()) {
    out += "no known code or symptom\n";
    if (first_error_line > 0)
      out +=
          wrapped("line " + std::to_string(first_error_line) + ": " + first_error, "the first line that reports an error is ", "  ", width);
    return out;
  }
  size_t number = 0;
  for (const auto& s : sightings) {
    const auto times = s.count == 1 ? std::string("once") : with_commas(static_cast<int64_t>(s.count)) + " times";
    out += "\n" + wrapped(s.problem.name + (s.shown == to_lower(s.problem.name) ? "" : " (" + s.shown + ")") + ": " + s.problem.meaning,
                          std::to_string(++number) + ". ", "   ", width);
    out += wrapped(times + ", first in line " + std::to_string(s.first_line) + ": " + s.excerpt, "   seen:   ", "           ", width);
    if (!s.problem.causes.empty()) out += wrapped(s.problem.causes, "   causes: ", "           ", width);
    out += wrapped(s.problem.fix, "   fix:    ", "           ", width);
  }
  return out;
}

Json LogReport::to_json() const {
  Json list = Json::array();
  for (const auto& s : sightings) {
    auto entry = problem_json(s.problem);
    entry.set("shown", s.shown);
    entry.set("count", static_cast<int64_t>(s.count));
    entry.set("first_line", static_cast<int64_t>(s.first_line));
    entry.set("excerpt", s.excerpt);
    list.push_back(entry);
  }
  return Json::object({{"lines", static_cast<int64_t>(lines)},
                       {"bytes", static_cast<int64_t>(bytes)},
                       {"error_lines", static_cast<int64_t>(error_lines)},
                       {"long_lines", static_cast<int64_t>(long_lines)},
                       {"first_error_line", static_cast<int64_t>(first_error_line)},
                       {"first_error", first_error},
                       {"compressed", compressed},
                       {"found", list}});
}

std::string explanation_text(const std::vector<KnownProblem>& problems, size_t width) {
  std::string out;
  for (const auto& a : problems) out += (out.empty() ? "" : "\n") + problem_text(a, width);
  return out;
}

Json explanation_json(const std::vector<KnownProblem>& problems) {
  Json list = Json::array();
  for (const auto& a : problems) list.push_back(problem_json(a));
  return Json::object({{"found", list}});
}

}  // namespace npu_train
