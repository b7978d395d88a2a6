// The tables of src/tools/scan/facts, ready to be looked up.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "npu_train/tools/scan/source_scan.hpp"

namespace npu_train::detail::scan {

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <class Value>
using TextMap = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

enum class CountedFor { Place, Operator, File, Project };

struct Library;

struct Rule {
  std::string id;
  Severity severity = Severity::Note;
  double hours = 0;
  CountedFor per = CountedFor::Place;
  std::string title, why, advice;
  bool met = false;             // no hours where a project serves NPUs already
  const Library* of = nullptr;  // whose names alone it is about
};

struct Library {
  std::string name;
  LibraryState state = LibraryState::Works;
  std::string replacement, advice;
  double hours = 0;
  Rule rule;  // "library:NAME"
};

/// What a row of apis.tsv says; `replacement` empty where a person has to decide.
struct Pattern {
  const Rule* rule = nullptr;
  std::string replacement, advice;
};

/// Rows of one kind. A pattern that ends in '*' matches what begins as it does.
class PatternTable {
 public:
  void add(std::string_view pattern, Pattern row);
  const Pattern* exact(std::string_view text) const;
  /// exact(), else the longest pattern with '*' that fits.
  const Pattern* find(std::string_view text) const;

  struct DottedMatch {
    const Pattern* row = nullptr;
    size_t length = 0;  // of the text that the pattern covers, up to the end of a component
  };
  /// Of a dotted name ("a.b.c" or "a::b::c"): the row of the longest part from its start. "a.b.*" fits "a.b.c", not "a.b".
  DottedMatch find_dotted(std::string_view name, std::string_view dot) const;

 private:
  TextMap<Pattern> exact_;
  std::vector<std::pair<std::string, Pattern>> prefixes_;  // without '*', the longest first
};

class Facts {
 public:
  Facts();
  Facts(const Facts&) = delete;
  Facts& operator=(const Facts&) = delete;

  /// Rows of apis.tsv by kind; operators.tsv adds to "py.name", "py.method", "cpp.name" and "cpp.method".
  const PatternTable& table(std::string_view kind) const;
  const Rule& rule(std::string_view id) const;
  /// The library that an import of `module` ("a.b.c") brings in; nullptr when the table has none.
  const Library* by_import(std::string_view module) const;
  /// By the name of a package, in any spelling that pip takes.
  const Library* by_package(std::string_view name) const;
  const Library* by_cmake(std::string_view name) const;

 private:
  void read_rules();
  void read_patterns();
  void read_operators();
  void read_libraries();
  void link_rules();

  std::deque<Rule> rules_;
  std::deque<Library> libraries_;
  TextMap<const Rule*> rule_by_id_;
  std::map<std::string, PatternTable, std::less<>> tables_;
  TextMap<const Library*> imports_, cmake_, packages_;
  std::vector<std::pair<std::string, const Library*>> package_prefixes_;
};

}  // namespace npu_train::detail::scan
