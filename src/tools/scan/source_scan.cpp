#include "npu_train/tools/scan/source_scan.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "npu_train/core/text.hpp"
#include "npu_train/tools/report/report.hpp"
#include "npu_train/tools/report/visible_text.hpp"
#include "tools/scan/project.hpp"

namespace npu_train {

using namespace detail::scan;
using detail::code_points;
using detail::visible_start;
using detail::visible_text;

const char* to_string(Severity severity) {
  static constexpr const char* kNames[] = {"note", "check", "change", "blocks"};
  return kNames[static_cast<size_t>(severity)];
}

const char* to_string(LibraryState state) {
  static constexpr const char* kNames[] = {"works", "a part works", "an adapted version works", "replaced by something else",
                                           "nothing known"};
  return kNames[static_cast<size_t>(state)];
}

const char* to_string(Feasibility verdict) {
  static constexpr const char* kNames[] = {"ready", "feasible with changes", "blocked"};
  return kNames[static_cast<size_t>(verdict)];
}

const char* to_string(DoneBy done_by) {
  static constexpr const char* kNames[] = {"nobody", "automatic", "tool", "hand"};
  return kNames[static_cast<size_t>(done_by)];
}

namespace {

constexpr size_t kNotes = 100;
constexpr size_t kFirstPlaces = 5;  // places that are listed for an operator

// Returns who makes a change. transfer_to_npu changes Python's functions, so it also handles devices that a command line or a settings file
// names.
DoneBy done_by(const Hit& hit, Language language) {
  static constexpr Language kOfPython[] = {Language::Python, Language::Notebook, Language::Shell, Language::Yaml, Language::Json};
  const bool runs = std::find(std::begin(kOfPython), std::end(kOfPython), language) != std::end(kOfPython);
  if (hit.rule->automatic && runs) return DoneBy::Automatic;
  if (!hit.edits.empty()) return DoneBy::Tool;
  return hit.rule->severity == Severity::Note ? DoneBy::Nobody : DoneBy::Hand;
}

// Converts ascending positions to lines and columns.
class Places {
 public:
  explicit Places(std::string_view text) : text_(text) {}
  void move_to(size_t at) {
    if (at < at_) at_ = line_begin_ = 0, line_ = 1;
    for (; at_ < at; ++at_)
      if (text_[at_] == '\n' || (text_[at_] == '\r' && (at_ + 1 == text_.size() || text_[at_ + 1] != '\n'))) {
        ++line_;
        line_begin_ = at_ + 1;
      }
  }
  int64_t line() const { return line_; }
  int64_t column() const {
    return static_cast<int64_t>(code_points(text_.substr(line_begin_, std::min<size_t>(at_ - line_begin_, 100'000)))) + 1;
  }

 private:
  std::string_view text_;
  size_t at_ = 0, line_begin_ = 0;
  int64_t line_ = 1;
};

int64_t lines_of(std::string_view text) {
  const auto ends = std::count(text.begin(), text.end(), '\n');
  return ends + (!text.empty() && text.back() != '\n' ? 1 : 0);
}

class Collector {
 public:
  explicit Collector(const ScanOptions& options) : options_(options) {}

  void add_file(const SourceFile& file, std::vector<Hit> hits, SourceScan& out) {
    std::stable_sort(hits.begin(), hits.end(), [](const Hit& a, const Hit& b) { return a.begin < b.begin; });
    Places places(file.text);
    std::map<const Rule*, size_t> in_file;
    const auto name = visible_text(file.path);
    for (const auto& hit : hits) {
      auto& [use, operators] = uses_[hit.rule];
      const auto before = in_file[hit.rule]++;
      if (hit.rule->met) met_.insert(hit.rule->id);
      const auto known = hit.rule->per == CountedFor::Operator && !operators.insert(operator_of(file.text, hit)).second;
      const double hours = known ? 0 : hours_of(*hit.rule, use.places, before);
      ++use.places;
      use.files += before == 0;
      ++out.done_by[done_by(hit, file.language)];
      use.hours += hours;
      if (!hit.edits.empty()) {
        ++use.mechanical;
        use.hours_mechanical += hours;
      }
      if (hit.library != nullptr) ++libraries_[hit.library].places;
      if (hit.rule->id == "unsupported-api" || hit.rule->id == "fallback-api") {
        auto& op = unsupported_[{operator_of(file.text, hit), hit.rule->id}];
        ++op.places;
        op.hours += hours;
        op.advice = hit.advice;
        if (op.first.size() < kFirstPlaces) {
          places.move_to(hit.begin);
          op.first.push_back(name + ":" + std::to_string(places.line()));
        }
      }
      const bool kept = before < options_.places_per_rule_and_file && out.findings.size() < options_.findings;
      const bool first = hit.library != nullptr && libraries_[hit.library].first_place.empty();
      if (!kept && !first) continue;
      places.move_to(hit.begin);
      if (first) libraries_[hit.library].first_place = name + ":" + std::to_string(places.line());
      if (!kept) continue;
      out.findings.push_back(finding(name, file.text, hit, places, hours));
      out.findings.back().done_by = done_by(hit, file.language);
    }
  }

  void finish(SourceScan& out, bool serves_npu) {
    for (auto& [rule, use] : uses_) {
      const bool met = serves_npu && rule->met;
      use.total.id = rule->id;
      use.total.title = rule->title;
      use.total.why = rule->why;
      use.total.advice = rule->advice;
      use.total.severity = met ? Severity::Note : rule->severity;
      if (met) use.total.hours = use.total.hours_mechanical = 0;
    }
    for (auto& [key, op] : unsupported_) {
      op.name = visible_text(key.first), op.rule = key.second;
      if (serves_npu && met_.contains(op.rule)) op.hours = 0;
      out.unsupported.push_back(std::move(op));
    }
    const auto of_library = hours_of_libraries();
    for (const auto& [library, hours] : of_library)
      if (const auto use = uses_.find(&library->rule); use != uses_.end()) use->second.total.hours = hours;
    for (const auto& [rule, use] : uses_) {
      out.places += use.total.places;
      out.hours += use.total.hours;
      out.hours_mechanical += use.total.hours_mechanical;
      out.rules.push_back(use.total);
    }
    std::sort(out.rules.begin(), out.rules.end(), [](const RuleUse& a, const RuleUse& b) {
      if (a.severity != b.severity) return a.severity > b.severity;
      return a.hours != b.hours ? a.hours > b.hours : a.id < b.id;
    });
    for (const auto& [library, use] : libraries_)
      out.libraries.push_back({library->name, library->state, library->replacement, library->advice + parts_of(*library),
                               of_library.at(library), use.places, use.first_place});
    for (auto& f : out.findings) {
      if (serves_npu && met_.contains(f.rule)) f.severity = Severity::Note, f.hours = 0;
      for (const auto& [library, hours] : of_library)
        if (f.rule == library->rule.id) f.hours = std::min(f.hours, hours);
    }
    std::sort(out.libraries.begin(), out.libraries.end(),
              [](const LibraryUse& a, const LibraryUse& b) { return a.state != b.state ? a.state > b.state : a.name < b.name; });
    const auto worst = out.rules.empty() ? Severity::Note : out.rules.front().severity;
    out.verdict = worst == Severity::Blocks ? Feasibility::Blocked
                  : worst == Severity::Note ? Feasibility::Ready
                                            : Feasibility::FeasibleWithChanges;
  }

 private:
  // Returns the hours of each library. Excludes the hours of rules for only some names of a library (apex.amp of apex, the attention of
  // xFormers), which are counted separately.
  std::map<const Library*, double> hours_of_libraries() const {
    std::map<const Library*, double> out;
    for (const auto& [library, use] : libraries_) {
      const auto own = uses_.find(&library->rule);
      out[library] = own == uses_.end() ? 0 : own->second.total.hours;
    }
    for (const auto& [rule, use] : uses_)
      if (const auto found = out.find(rule->of); found != out.end()) found->second = std::max(0.0, found->second - use.total.hours);
    return out;
  }

  // Returns a sentence about the hours of a library that rules for only some of its names count: " Of its 4 h, 1 h are counted in ...".
  std::string parts_of(const Library& library) const {
    double hours = 0;
    std::vector<std::string> rules;
    for (const auto& [rule, use] : uses_)
      if (rule->of == &library && use.total.hours > 0) hours += use.total.hours, rules.push_back(rule->id);
    if (rules.empty()) return "";
    return " Of its " + short_number(library.hours) + " h, " + short_number(std::min(hours, library.hours)) + " h are counted in " +
           join(rules, " and ") + ".";
  }

  struct Use {
    RuleUse total;
    std::set<std::string> operators;  // for a rule that counts each operator once
  };
  struct LibraryPlaces {
    int64_t places = 0;
    std::string first_place;
  };

  // Returns "interpolate" for F.interpolate and for torch.nn.functional.interpolate.
  static std::string operator_of(std::string_view text, const Hit& hit) {
    constexpr size_t kLongest = 200;
    const auto found = text.substr(hit.begin, std::min<size_t>(hit.length, kLongest));
    return std::string(found.substr(found.find_last_of(".:") + 1));
  }

  static double hours_of(const Rule& rule, int64_t places, size_t in_file) {
    const bool counts =
        rule.per == CountedFor::Place || rule.per == CountedFor::Operator || (rule.per == CountedFor::File ? in_file == 0 : places == 0);
    return counts ? rule.hours : 0;
  }

  static SourceFinding finding(const std::string& file, std::string_view text, const Hit& hit, const Places& places, double hours) {
    constexpr size_t kShown = 80;
    SourceFinding out;
    out.file = file;
    out.line = places.line();
    out.column = places.column();
    out.rule = hit.rule->id;
    out.severity = hit.rule->severity;
    out.text = visible_start(text.substr(hit.begin, std::min<size_t>(hit.length, 4 * kShown)), kShown);
    out.advice = hit.advice;
    out.mechanical = !hit.edits.empty();
    if (out.mechanical) out.replacement = visible_start(detail::scan::replacement_of(text, hit), kShown);
    out.hours = hours;
    return out;
  }

  struct ByName {
    bool operator()(const Rule* a, const Rule* b) const { return a->id < b->id; }
    bool operator()(const Library* a, const Library* b) const { return a->name < b->name; }
  };

  const ScanOptions& options_;
  std::map<const Rule*, Use, ByName> uses_;
  std::map<const Library*, LibraryPlaces, ByName> libraries_;
  std::map<std::pair<std::string, std::string>, UnsupportedOperator> unsupported_;  // by name and rule
  std::set<std::string> met_;                                                       // rules that a project with NPU support already fulfils
};

void note(SourceScan& scan, const std::string& text) { scan.notes.push_back(visible_text(text)); }

/// Keeps the first kNotes notes, and adds the number of the others.
void cut_notes(SourceScan& scan) {
  if (scan.notes.size() <= kNotes) return;
  const auto more = scan.notes.size() - (kNotes - 1);
  scan.notes.resize(kNotes);
  scan.notes.back() = "and " + with_commas(static_cast<int64_t>(more)) + " more";
}

std::vector<Hit> hits_of(const Facts& facts, const LocalModules& modules, const SourceFile& file, SourceScan& out) {
  FileMarks marks;
  auto hits = scan_file(
      facts, file, [&](std::string_view name) { return modules.is_local(file.path, name); }, false, &marks);
  const auto note_first = [&](int64_t at, std::string& where) {
    if (at < 0 || !where.empty()) return;
    Places place(file.text);
    place.move_to(static_cast<size_t>(at));
    where = visible_text(file.path) + ":" + std::to_string(place.line());
  };
  note_first(marks.npu, out.serves_npu);
  note_first(marks.ranks, out.starts_ranks);
  return hits;
}

}  // namespace

SourceScan scan_source(const std::filesystem::path& folder, const ScanOptions& options) {
  const auto root = source_folder(folder);
  std::vector<std::string> unreadable;
  const auto entries = walk(root, {.max_entries = options.max_files}, unreadable);
  const Facts facts;
  const LocalModules modules(entries, root.filename().string());
  Collector collector(options);
  SourceScan out;
  out.source = visible_text(folder.string());
  for (const auto& text : unreadable) note(out, text);
  for (const auto& entry : entries) {
    if (entry.kind == WalkEntry::Kind::Link) ++out.links;
    if (entry.kind == WalkEntry::Kind::Folder && entry.skipped) {
      ++out.folders_skipped;
      note(out, entry.path + ": not scanned");
    }
    if (entry.kind != WalkEntry::Kind::File) continue;
    SourceFile file;
    std::string why;
    switch (read_source(root, entry, options.max_file_bytes, file, why)) {
      case ReadResult::Source:
        ++out.files;
        out.lines += lines_of(file.text);
        collector.add_file(file, hits_of(facts, modules, file, out), out);
        break;
      case ReadResult::Other:
        ++out.other_files;
        break;
      case ReadResult::Binary:
        ++out.binary_files;
        note(out, entry.path + ": not text, not scanned");
        break;
      default:
        note(out, entry.path + ": not scanned: " + why);
    }
  }
  check(out.files > 0, ErrorKind::Data, "scan", folder.string(),
        ": no source files (Python, C++, CUDA, CMake, requirements, shell, settings) among ",
        with_commas(out.other_files + out.binary_files), " files; hint: give the folder of a project");
  cut_notes(out);
  std::error_code ignored;
  const bool converted = std::filesystem::exists(root / kReportFolder, ignored);  // the project's code for NPUs comes from a rewrite
  collector.finish(out, options.serves_npu.value_or(!converted && !out.serves_npu.empty()));
  if (converted && !options.serves_npu.value_or(false)) out.serves_npu.clear();
  return out;
}

}  // namespace npu_train
