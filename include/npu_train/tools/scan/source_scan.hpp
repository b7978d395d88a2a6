/// Finds the places in a Python or C++ project that depend on CUDA, and estimates the hours to port them to Ascend NPUs. No code of the
/// project is executed: its files are read as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {

/// The severity of a finding.
enum class Severity {
  Note,    ///< works or has no effect; for information
  Check,   ///< may work; a person must check
  Change,  ///< does not work unchanged; the required change is known
  Blocks,  ///< does not work, and a replacement must be written first
};
const char* to_string(Severity severity);

/// The support of a third-party library for NPUs.
enum class LibraryState {
  Works,        ///< supported upstream
  Partial,      ///< partially supported
  Fork,         ///< supported in an adapted version
  Replacement,  ///< replaced by an alternative
  None,         ///< unknown
};
const char* to_string(LibraryState state);

/// Who makes the change of a finding.
enum class DoneBy {
  Nobody,     ///< there is nothing to do
  Automatic,  ///< torch_npu, while the program runs: `from torch_npu.contrib import transfer_to_npu`
  Tool,       ///< a rewrite (tools/scan/rewrite.hpp)
  Hand,
};
/// Returns "nobody", "automatic", "tool" or "hand".
const char* to_string(DoneBy done_by);

/// A finding at one place. Texts and paths are safe to display: bytes that are not UTF-8 and terminal controls are escaped.
struct SourceFinding {
  std::string file;              ///< relative to the scanned folder
  int64_t line = 0, column = 0;  ///< from 1, columns in code points
  std::string text;              ///< the text at this place, at most 80 code points
  std::string rule;              ///< id of a RuleUse
  Severity severity = Severity::Note;
  std::string advice;       ///< additional advice for this text; often empty
  std::string replacement;  ///< replacement by a rewrite; empty unless mechanical
  bool mechanical = false;  ///< a rewrite changes it
  DoneBy done_by = DoneBy::Hand;
  double hours = 0;  ///< hours of manual work; 0 for further places of a rule that counts once per file or project
};

/// A rule with findings, summed over all places.
struct RuleUse {
  std::string id, title, why, advice;
  Severity severity = Severity::Note;
  int64_t places = 0, files = 0, mechanical = 0;
  double hours = 0;             ///< hours of all places
  double hours_mechanical = 0;  ///< hours of the places that a rewrite changes
};

/// A third-party library that the project imports, installs or links.
struct LibraryUse {
  std::string name;
  LibraryState state = LibraryState::Works;
  std::string replacement, advice;
  double hours = 0;
  int64_t places = 0;
  std::string first_place;  ///< "file:line"
};

/// An operator that an NPU does not support as it is, with all places, including those that were only counted.
struct UnsupportedOperator {
  std::string name, rule;          ///< "inverse", "unsupported-api" or "fallback-api"
  std::string advice;              ///< additional advice for this operator; often empty
  std::vector<std::string> first;  ///< the first places, as "file:line"; at most 5
  int64_t places = 0;
  double hours = 0;
};

enum class Feasibility {
  Ready,                ///< no required changes or checks
  FeasibleWithChanges,  ///< all required changes are known
  Blocked,              ///< a part must be written or given up first
};
const char* to_string(Feasibility verdict);

struct ScanOptions {
  uint64_t max_file_bytes = uint64_t{8} << 20;  ///< larger files are reported, not read
  size_t max_files = 1'000'000;                 ///< Error(Data) if there are more
  size_t places_per_rule_and_file = 50;         ///< findings kept; further ones are only counted
  size_t findings = 100'000;                    ///< findings kept in total
  std::optional<bool> serves_npu{};             ///< whether the project already supports NPUs; nullopt: determined from its code
};

struct SourceScan {
  std::string source;
  Feasibility verdict = Feasibility::Ready;
  double hours = 0;                                ///< hours of all findings, including those that were only counted: the sum over `rules`
  double hours_mechanical = 0;                     ///< part of `hours` that a rewrite saves
  std::vector<SourceFinding> findings;             ///< sorted by file and line
  std::vector<RuleUse> rules;                      ///< sorted by severity, worst first
  std::vector<LibraryUse> libraries;               ///< sorted by support, worst first
  std::vector<UnsupportedOperator> unsupported{};  ///< sorted by name
  int64_t places = 0;                              ///< places of all rules, including those that were only counted
  std::map<DoneBy, int64_t> done_by{};             ///< places by who makes the change
  int64_t files = 0, lines = 0;                    ///< source text that was read
  int64_t other_files = 0;                         ///< files whose names are not those of source text
  int64_t binary_files = 0;                        ///< files with names of source text, but with binary content
  int64_t folders_skipped = 0;                     ///< version control, builds, caches, virtual environments
  int64_t links = 0;                               ///< not followed; a target inside the folder is read under its own name
  std::string serves_npu;                          ///< "file:line" of code for NPUs (torch.npu, torch_npu, torch.accelerator); "": none
  std::string starts_ranks;        ///< "file:line" of code that starts several processes itself (init_process_group); "": none
  std::vector<std::string> notes;  ///< notes on files that are too large, unreadable or have another encoding; at most 100
};

/// Reads every source file under `folder`: Python, C++ and CUDA, CMake, requirements and similar files, shell scripts, YAML and JSON
/// settings. Comments, documentation and prose cause no findings; names are followed through imports, `using` and aliases of namespaces.
///
/// A project that already supports NPUs (`serves_npu`) has replaced the platform's missing operators and libraries, so these are listed
/// without hours. Functions and statements that support both CUDA and NPUs are notes (rule serves-npu), and a rewrite does not change them.
///
/// Links are never followed, so circles are harmless and nothing outside `folder` is read. Skipped: version control, build folders,
/// node_modules, caches, virtual environments, reports of a rewrite. The rules are in tables (src/tools/scan/facts).
/// Error(Usage) if `folder` is not a folder; Error(Data) if it contains no source file, or more files than allowed.
SourceScan scan_source(const std::filesystem::path& folder, const ScanOptions& options = {});

// A source scan as text for a terminal, as JSON, as CSV and as a page.

/// Returns one sentence: verdict, places, hours.
std::string headline(const SourceScan& scan);

/// Reports the verdict, libraries, actions by rule, and the places, worst first. JSON: {"source", "verdict", "summary", "hours",
/// "hours_mechanical", "places", "done_by", "files", "lines", "skipped", "libraries", "rules", "findings", "notes"}.
Report report_of(const SourceScan& scan);

/// Writes one row per finding: file, line, column, severity, rule, text, replacement, mechanical, done_by, hours, advice.
std::string to_csv(const SourceScan& scan);

/// Returns a table of the operators that an NPU does not support as they are (rules unsupported-api and fallback-api): operator, support,
/// count (places), where (the first few, as file:line), action, done_by, hours. This is the content of unsupported_operators.csv.
std::string unsupported_csv(const SourceScan& scan);

}  // namespace npu_train
