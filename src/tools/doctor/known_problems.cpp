#include "tools/doctor/known_problems.hpp"
#include "npu_train/core/facts_table.hpp"

#include <algorithm>
#include <cctype>
#include <map>

#include "npu_train/core/text.hpp"
#include "tools/doctor/facts/codes.hpp"
#include "tools/doctor/facts/symptoms.hpp"
#include "tools/doctor/parse.hpp"

namespace npu_train {
namespace {

constexpr size_t kContext = 64;  // look-behind distance in bytes for an error word before a numeric code

bool is_word_byte(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

// Expands "507000-507008" to its numbers; returns a single code unchanged.
std::vector<std::string> code_patterns(const std::string& code) {
  const auto dash = code.find('-');
  if (dash == std::string::npos) return {to_lower(code)};
  std::vector<std::string> out;
  const auto from = detail::whole_number(code.substr(0, dash)), to = detail::whole_number(code.substr(dash + 1));
  for (auto i = from.value_or(0); i <= to.value_or(-1); ++i) out.push_back(std::to_string(i));
  return out;
}

std::vector<KnownProblem> read_known_problems() {
  std::vector<KnownProblem> out;
  for (const auto& row : detail::facts_texts(facts::codes, "codes.tsv", 6))
    out.push_back(
        {row[0], row[1], row[3], row[4], row[5], static_cast<int>(detail::whole_number(row[2]).value_or(2)), code_patterns(row[0]), true});
  for (const auto& row : detail::facts_texts(facts::symptoms, "symptoms.tsv", 6)) {
    auto patterns = detail::split(row[2], '|');
    std::erase(patterns, "");
    out.push_back({row[0], "symptom", row[3], row[4], row[5], static_cast<int>(detail::whole_number(row[1]).value_or(2)), patterns, false});
  }
  return out;
}

// All patterns, matched in one pass.
struct Matcher {
  std::vector<detail::Hit> hits;  // one per pattern; `place` is not set
  detail::PatternMatcher patterns;

  static Matcher make() {
    using Kind = detail::Hit::Kind;
    std::vector<detail::Hit> hits;
    std::vector<std::string> all;
    const auto add = [&](const std::string& pattern, Kind kind, const KnownProblem* problem) {
      hits.push_back({kind, problem, 0, pattern.size()});
      all.push_back(pattern);
    };
    for (const auto& problem : known_problems())
      for (const auto& pattern : problem.patterns) add(pattern, Kind::KnownProblem, &problem);
    for (const char* word : {"error", "fatal", "exception"}) add(word, Kind::ErrorWord, nullptr);
    for (const char* word : {"error code is", "errcode", "error code:"}) add(word, Kind::CodeFollows, nullptr);
    return {hits, detail::PatternMatcher(all)};
  }
};

bool stands_alone(std::string_view line, size_t place, size_t length) {
  const bool before = place > 0 && is_word_byte(line[place - 1]),
             after = place + length < line.size() && is_word_byte(line[place + length]);
  // a part of a decimal number is no code: 0.507018, 507018.5
  const bool fraction = (place > 1 && line[place - 1] == '.' && is_word_byte(line[place - 2])) ||
                        (place + length + 1 < line.size() && line[place + length] == '.' &&
                         std::isdigit(static_cast<unsigned char>(line[place + length + 1])) != 0);
  return !before && !after && !fraction;
}

bool has_error_word(std::string_view line, size_t place) {
  const auto from = place > kContext ? place - kContext : 0;
  const auto before = to_lower(line.substr(from, place - from));
  for (const char* word : {"err", "code", "ret", "acl", "status"})
    if (before.find(word) != std::string::npos) return true;
  return false;
}

}  // namespace

const std::vector<KnownProblem>& known_problems() {
  static const auto known = read_known_problems();
  return known;
}

namespace detail {

namespace {

// Removes a hit inside a longer one of another problem, as "溢出" in "显存溢出".
void drop_contained(std::vector<Hit>& hits) {
  const auto inside = [](const Hit& a, const Hit& b) {
    return a.problem != nullptr && b.problem != nullptr && a.problem != b.problem && a.length < b.length && b.place <= a.place &&
           a.place + a.length <= b.place + b.length;
  };
  const auto all = hits;
  std::erase_if(hits,
                [&](const Hit& hit) { return std::any_of(all.begin(), all.end(), [&](const Hit& other) { return inside(hit, other); }); });
}

// Whether the words right before `place` negate it: "no overflow", "没有溢出". The question "有没有溢出" does not.
bool is_negated(std::string_view line, size_t place) {
  const auto from = place > kContext ? place - kContext : 0;
  auto before = to_lower(line.substr(from, place - from));
  const auto drop_end = [&](std::string_view end) {
    const bool ends = before.ends_with(end);
    if (ends) before.resize(before.size() - end.size());
    return ends;
  };
  for (bool more = true; more;) {
    more = false;
    for (const std::string_view filler : {" ", " a", " an", " any", " the", " more", "出现", "发生", "任何", "过", "再"})
      more |= drop_end(filler);
  }
  for (const std::string_view asks : {"有没有", "是不是", "会不会", "有无", "是否"})
    if (before.ends_with(asks)) return false;
  for (const std::string_view no : {"没有", "没", "无", "不", "未", "不会", "不是"})
    if (before.ends_with(no)) return true;
  for (const std::string_view no : {"no", "not", "without", "never", "n't"})
    if (before.ends_with(no) && (no == "n't" || before.size() == no.size() || !is_word_byte(before[before.size() - no.size() - 1])))
      return true;
  return false;
}

}  // namespace

void find_known_problems(std::string_view line, bool context, const std::function<void(const Hit&)>& found, bool* negated) {
  static const auto matcher = Matcher::make();
  std::vector<Hit> hits;
  matcher.patterns.each(line, [&](size_t pattern, size_t place) {
    auto hit = matcher.hits[pattern];
    hit.place = place;
    if (hit.problem != nullptr && hit.problem->is_code) {
      if (!stands_alone(line, place, hit.length)) return;
      if (context && all_digits(line.substr(place, hit.length)) && !has_error_word(line, place)) return;
    } else if (hit.problem != nullptr && is_negated(line, place)) {
      if (negated != nullptr) *negated = true;
      return;
    }
    hits.push_back(hit);
  });
  constexpr size_t kMostCompared = 1000;  // a line of 64 KiB can have more hits, which are then not compared
  if (hits.size() <= kMostCompared) drop_contained(hits);
  for (const auto& hit : hits) found(hit);
}

std::optional<KnownProblem> family_of(std::string_view code) {
  KnownProblem out{
      .name = std::string(code), .layer = "", .meaning = "", .causes = "", .fix = "", .rank = 2, .patterns = {}, .is_code = true};
  if (code.size() == 8 && to_lower(code.substr(0, 3)) == "err" && all_digits(code.substr(3))) {
    static constexpr const char* kModules[] = {"its Python or C++ layer (PTA)", "its operators (OPS)", "communication (DIST)",
                                               "graphs (GRAPH)", "profiling (PROF)"};
    std::transform(out.name.begin(), out.name.end(), out.name.begin(), [](unsigned char c) { return std::toupper(c); });
    // Looks up the last three digits, which have fixed meanings in torch_npu's documents.
    static const std::map<std::string_view, const char*> kinds = {{"001", "an invalid parameter"},
                                                                  {"002", "an invalid type"},
                                                                  {"003", "an invalid value, shape or dimension"},
                                                                  {"004", "an invalid pointer"},
                                                                  {"005", "an internal error"},
                                                                  {"006", "a memory error"},
                                                                  {"007", "this is not supported"},
                                                                  {"008", "a missing file"},
                                                                  {"009", "a resource that is not available"},
                                                                  {"010", "a failed system call"},
                                                                  {"011", "a timeout"},
                                                                  {"012", "a missing permission"},
                                                                  {"100", "a call into CANN failed"},
                                                                  {"200", "a call into HCCL failed"},
                                                                  {"300", "a call into the graph engine failed"},
                                                                  {"999", "an exception of the program or of another library"}};
    const auto module = static_cast<size_t>(whole_number(code.substr(3, 2)).value_or(99));
    const auto kind = kinds.find(code.substr(5));
    out.layer = "torch_npu";
    out.meaning = std::string("an error of torch_npu") + (module < std::size(kModules) ? std::string(" in ") + kModules[module] : "") +
                  (kind == kinds.end() ? "" : std::string(": ") + kind->second) + "; the code itself is not in the table";
    out.fix = "read the text next to the code, and the codes of CANN and HCCL in the following lines";
    return out;
  }
  if (code.size() != 6 || !all_digits(code) || code[0] < '1' || code[0] > '5') return std::nullopt;
  out.layer = "CANN";
  out.meaning = std::string(code[0] == '1'   ? "a call that CANN refused"
                            : code[0] == '2' ? "a resource that CANN needs is exhausted or missing"
                            : code[0] == '3' ? "a storage limit was reached"
                                             : "an error inside CANN or on the device") +
                "; the code itself is not in the table";
  out.fix = "read the lines with EE, EZ and EI codes near it, and the log in ~/ascend/log";
  return out;
}

}  // namespace detail
}  // namespace npu_train
