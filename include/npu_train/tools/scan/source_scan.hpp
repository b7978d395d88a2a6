/// What in a Python or C++ project ties it to CUDA, where, and how many hours it takes to move it to Ascend NPUs. Nothing of the project is
/// run: its files are read as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/core/error.hpp"

namespace npu_train {

/// How bad a finding is.
enum class Severity {
  Note,    ///< works or does nothing; good to know
  Check,   ///< may work; somebody has to look
  Change,  ///< does not work as it is; what to do is known
  Blocks,  ///< does not work, and nothing takes its place without being written first
};
const char* to_string(Severity severity);

/// How a third-party library stands on NPUs.
enum class LibraryState {
  Works,        ///< supported upstream
  Partial,      ///< a part works
  Fork,         ///< an adapted version does
  Replacement,  ///< something else takes its place
  None,         ///< nothing is known
};
const char* to_string(LibraryState state);

/// One place. Texts and paths are fit to be shown: what is not UTF-8 or acts on a terminal is escaped.
struct SourceFinding {
  std::string file;              ///< relative to the folder that was scanned
  int64_t line = 0, column = 0;  ///< from 1, columns in code points
  std::string text;              ///< what stands there, at most 80 code points
  std::string rule;              ///< id of a RuleUse
  Severity severity = Severity::Note;
  std::string advice;       ///< more than the rule says about this very text; often empty
  std::string replacement;  ///< what a rewrite puts there; empty unless mechanical
  bool mechanical = false;  ///< a rewrite does it
  double hours = 0;         ///< of work by hand; 0 for further places of what is counted once for a file or for the project
};

/// A rule that found something, over all places.
struct RuleUse {
  std::string id, title, why, advice;
  Severity severity = Severity::Note;
  int64_t places = 0, files = 0, mechanical = 0;
  double hours = 0;             ///< of all places
  double hours_mechanical = 0;  ///< of those that a rewrite does
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

enum class Feasibility {
  Ready,                ///< nothing to change, nothing to check
  FeasibleWithChanges,  ///< all that has to be done is known
  Blocked,              ///< something has to be written or given up first
};
const char* to_string(Feasibility verdict);

struct ScanOptions {
  uint64_t max_file_bytes = uint64_t{8} << 20;  ///< larger files are told, not read
  size_t max_files = 1'000'000;                 ///< Error(Data) beyond
  size_t places_per_rule_and_file = 50;         ///< kept as findings; further ones are counted
  size_t findings = 100'000;                    ///< kept in all
  std::optional<bool> serves_npu{};             ///< whether the project serves NPUs already; not given: by its code
};

struct SourceScan {
  std::string source;
  Feasibility verdict = Feasibility::Ready;
  double hours = 0;                     ///< of all findings, kept or only counted: the sum over `rules`
  double hours_mechanical = 0;          ///< of these what a rewrite saves
  std::vector<SourceFinding> findings;  ///< by file and line
  std::vector<RuleUse> rules;           ///< the worst first
  std::vector<LibraryUse> libraries;    ///< the worst first
  int64_t places = 0;                   ///< of all rules, kept or not
  int64_t files = 0, lines = 0;         ///< of source text that was read
  int64_t other_files = 0;              ///< no source text by their names
  int64_t binary_files = 0;             ///< source by their names, but no text
  int64_t folders_skipped = 0;          ///< version control, builds, caches, virtual environments
  int64_t links = 0;                    ///< not followed; what they lead to inside is read under its own name
  std::string serves_npu;               ///< "file:line" of code for NPUs (torch.npu, torch_npu, torch.accelerator); "" where there is none
  std::vector<std::string> notes;       ///< files too large, unreadable or of another encoding; at most 100
};

/// Reads every source file under `folder`: Python, C++ and CUDA, CMake, requirements and their relatives, shell scripts, YAML and JSON
/// settings. Comments, documentation and prose raise nothing; names are followed through imports, `using` and aliases of namespaces.
///
/// A project that serves NPUs already (`serves_npu`) has met what the operators and libraries of the platform lack: that is listed without
/// hours. Functions and statements that serve both CUDA and NPUs are notes (rule serves-npu), and a rewrite leaves them alone.
///
/// Links are never followed, so circles do no harm and nothing outside of `folder` is read. Skipped: version control, build folders,
/// node_modules, caches, virtual environments, reports of a rewrite. What is looked for stands in tables (src/tools/scan/facts).
/// Error(Usage) when `folder` is no folder; Error(Data) when it holds no source file, or more files than allowed.
SourceScan scan_source(const std::filesystem::path& folder, const ScanOptions& options = {});

}  // namespace npu_train
