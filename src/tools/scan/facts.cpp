#include "tools/scan/facts.hpp"

#include <algorithm>

#include "npu_train/core/facts_table.hpp"
#include "npu_train/core/text.hpp"
#include "tools/scan/facts/apis.hpp"
#include "tools/scan/facts/libraries.hpp"
#include "tools/scan/facts/operators.hpp"
#include "tools/scan/facts/rules.hpp"

namespace npu_train::detail::scan {
namespace {

double number(std::string_view text) {
  const auto value = decimal_number(text);
  check(value.has_value(), ErrorKind::Internal, "scan", "'", std::string(text), "' is not a number");
  return *value;
}

// Returns the enumerator of this name; `names` lists them in order, separated by blanks.
template <class Value>
Value value_of(std::string_view text, std::string_view names) {
  const auto all = split_view(names, ' ');
  const auto found = std::find(all.begin(), all.end(), text);
  check(found != all.end(), ErrorKind::Internal, "scan", "the tables contain '", std::string(text), "'; allowed: ", std::string(names));
  return static_cast<Value>(found - all.begin());
}

// Normalises the name of a package: "Flash_Attn" and "flash-attn" are the same.
std::string package_name(std::string_view name) {
  auto out = to_lower(name);
  std::replace(out.begin(), out.end(), '_', '-');
  std::replace(out.begin(), out.end(), '.', '-');
  return out;
}

// Returns "a::b" for "a.b".
std::string cpp_name(std::string_view name) {
  std::string out;
  for (const char c : name) out += c == '.' ? std::string("::") : std::string(1, c);
  return out;
}

Severity severity_of(LibraryState state) {
  return state == LibraryState::Works     ? Severity::Note
         : state == LibraryState::Partial ? Severity::Check
         : state == LibraryState::None    ? Severity::Blocks
                                          : Severity::Change;
}

}  // namespace

void PatternTable::add(std::string_view pattern, Pattern row) {
  if (!pattern.ends_with('*')) {
    exact_.emplace(pattern, std::move(row));
    return;
  }
  pattern.remove_suffix(1);
  prefixes_.emplace_back(pattern, std::move(row));
  std::stable_sort(prefixes_.begin(), prefixes_.end(), [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
}

const Pattern* PatternTable::exact(std::string_view text) const {
  const auto found = exact_.find(text);
  return found == exact_.end() ? nullptr : &found->second;
}

const Pattern* PatternTable::find(std::string_view text) const {
  if (const auto* row = exact(text)) return row;
  for (const auto& [start, row] : prefixes_)
    if (text.starts_with(start)) return &row;
  return nullptr;
}

PatternTable::DottedMatch PatternTable::find_dotted(std::string_view name, std::string_view dot) const {
  constexpr size_t kLongest = 200;  // longer than any row
  if (name.size() > kLongest) name = name.substr(0, name.rfind(dot, kLongest));
  for (auto part = name;;) {
    if (const auto* row = exact(part)) return {row, part.size(), part.size()};
    const auto last = part.rfind(dot);
    if (last == std::string_view::npos) return {};
    const auto stem = part.substr(0, last + dot.size());
    for (const auto& [start, row] : prefixes_)
      if (stem == start) return {&row, part.size(), stem.size()};
    part = part.substr(0, last);
  }
}

Facts::Facts() {
  read_rules();
  read_patterns();
  read_operators();
  read_libraries();
  link_rules();
}

// Links each rule to its library: a rule for "apex.amp.*" belongs to apex.
void Facts::link_rules() {
  std::map<std::string_view, const Library*> of;  // by rule id
  for (const auto& c : facts_rows(facts::apis, "apis.tsv", 5)) {
    if (c[0] == "py.keyword") continue;  // such a row names no library
    const auto* library = c[0] == "py.name" ? by_import(c[1].substr(0, c[1].find(".*"))) : nullptr;
    const auto found = of.emplace(c[2], library).first;
    if (found->second != library) found->second = nullptr;
  }
  for (auto& rule : rules_)
    if (const auto found = of.find(rule.id); found != of.end()) rule.of = found->second;
}

void Facts::read_rules() {
  for (const auto& c : facts_rows(facts::rules, "rules.tsv", 9)) {
    Rule rule;
    rule.id = c[0];
    rule.severity = value_of<Severity>(c[1], "note check change blocks");
    rule.hours = number(c[2]);
    rule.per = value_of<CountedFor>(c[3], "place operator file project");
    rule.title = c[4];
    rule.why = c[5];
    rule.advice = c[6];
    rule.met = c[7] == "yes";
    rule.automatic = c[8] == "yes";
    rules_.push_back(std::move(rule));
    rule_by_id_.emplace(rules_.back().id, &rules_.back());
  }
}

void Facts::read_patterns() {
  for (const auto& c : facts_rows(facts::apis, "apis.tsv", 5)) {
    const auto kind = tables_.try_emplace(std::string(c[0])).first;
    kind->second.add(c[1], {&rule(c[2]), std::string(c[3]), std::string(c[4])});
  }
}

void Facts::read_operators() {
  for (const auto& c : facts_rows(facts::operators, "operators.tsv", 3)) {
    const Pattern row{&rule(c[1]), "", std::string(c[2])};
    if (c[0].starts_with('.')) {
      tables_["py.method"].add(c[0].substr(1), row);
      tables_["cpp.method"].add(c[0].substr(1), row);
      continue;
    }
    tables_["py.name"].add(c[0], row);
    const auto name = cpp_name(c[0]);
    tables_["cpp.name"].add(name, row);
    if (name.starts_with("torch::") && name.find("::", 7) == std::string::npos) tables_["cpp.name"].add("at::" + name.substr(7), row);
  }
}

void Facts::read_libraries() {
  for (const auto& c : facts_rows(facts::libraries, "libraries.tsv", 8)) {
    Library library;
    library.name = c[0];
    library.state = value_of<LibraryState>(c[4], "works partial fork replacement none");
    library.replacement = c[5];
    library.hours = number(c[6]);
    library.advice = c[7];
    library.rule = {"library:" + library.name,
                    severity_of(library.state),
                    library.hours,
                    CountedFor::Project,
                    "library " + library.name,
                    "On NPUs: " + std::string(to_string(library.state)) + ".",
                    (library.replacement.empty() ? "" : "Use " + library.replacement + ". ") + library.advice,
                    library.state != LibraryState::None};
    libraries_.push_back(std::move(library));
    const auto* entry = &libraries_.back();
    const auto add = [&](std::string_view names, TextMap<const Library*>& to) {
      for (const auto name : split_view(names, ','))
        if (!name.empty()) to.emplace(name, entry);
    };
    add(c[1], imports_);
    add(c[3], cmake_);
    for (const auto name : split_view(c[2], ',')) {
      if (name.ends_with('*')) {
        package_prefixes_.emplace_back(package_name(name.substr(0, name.size() - 1)), entry);
      } else if (!name.empty()) {
        packages_.emplace(package_name(name), entry);
      }
    }
  }
}

const PatternTable& Facts::table(std::string_view kind) const {
  const auto found = tables_.find(kind);
  check(found != tables_.end(), ErrorKind::Internal, "scan", "no rows of kind '", std::string(kind), "'");
  return found->second;
}

const Rule& Facts::rule(std::string_view id) const {
  const auto found = rule_by_id_.find(id);
  check(found != rule_by_id_.end(), ErrorKind::Internal, "scan", "no rule '", std::string(id), "'");
  return *found->second;
}

const Library* Facts::by_import(std::string_view module) const {
  for (;;) {
    const auto found = imports_.find(module);
    if (found != imports_.end()) return found->second;
    const auto last = module.rfind('.');
    if (last == std::string_view::npos) return nullptr;
    module = module.substr(0, last);
  }
}

const Library* Facts::by_package(std::string_view name) const {
  const auto wanted = package_name(name);
  const auto found = packages_.find(wanted);
  if (found != packages_.end()) return found->second;
  for (const auto& [start, library] : package_prefixes_)
    if (wanted.starts_with(start)) return library;
  return nullptr;
}

const Library* Facts::by_cmake(std::string_view name) const {
  const auto found = cmake_.find(name);
  return found == cmake_.end() ? nullptr : found->second;
}

}  // namespace npu_train::detail::scan
