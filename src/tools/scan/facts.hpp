// The tables of src/tools/scan/facts, with lookups.
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
  bool met = false;             // costs no hours in a project that already supports NPUs
  bool automatic = false;       // transfer_to_npu makes the change in a Python program
  const Library* of = nullptr;  // the only library whose names the rule covers; nullptr if there is none, or several
};

struct Library {
  std::string name;
  LibraryState state = LibraryState::Works;
  std::string replacement, advice;
  double hours = 0;
  Rule rule;  // "library:NAME"
};

/// A row of apis.tsv; `replacement` is empty if a person has to decide.
struct Pattern {
  const Rule* rule = nullptr;
  std::string replacement, advice;
};

/// The rows of one kind. A pattern that ends in '*' matches every text that begins with the rest of it.
class PatternTable {
 public:
  void add(std::string_view pattern, Pattern row);
  const Pattern* exact(std::string_view text) const;
  /// Returns exact() or, if there is none, the longest matching pattern with '*'.
  const Pattern* find(std::string_view text) const;

  struct DottedMatch {
    const Pattern* row = nullptr;
    size_t length = 0;   // length of the text that the pattern covers, up to the end of a component
    size_t literal = 0;  // like `length`, without the text that a '*' covers
  };
  /// Finds the row of the longest leading part of a dotted name ("a.b.c" or "a::b::c"). "a.b.*" matches "a.b.c", not "a.b".
  DottedMatch find_dotted(std::string_view name, std::string_view dot) const;

 private:
  TextMap<Pattern> exact_;
  std::vector<std::pair<std::string, Pattern>> prefixes_;  // patterns without the '*', the longest first
};

class Facts {
 public:
  Facts();
  Facts(const Facts&) = delete;
  Facts& operator=(const Facts&) = delete;

  /// Returns the rows of apis.tsv of one kind; operators.tsv adds to "py.name", "py.method", "cpp.name" and "cpp.method".
  const PatternTable& table(std::string_view kind) const;
  const Rule& rule(std::string_view id) const;
  /// Returns the library that provides an imported `module` ("a.b.c"); nullptr if the table has none.
  const Library* by_import(std::string_view module) const;
  /// Finds a package by name, in any spelling that pip accepts.
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
