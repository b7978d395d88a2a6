/// The result of a check of a machine: the fact, its source, the verdict, and the remedy.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "npu_train/core/wrapped.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train {

enum class Verdict {
  Ok,
  Warn,     ///< training works, but slower, less safely or differently than expected
  Fail,     ///< training fails, or computes wrong numbers
  NotHere,  ///< nothing to judge: this machine has no such part
};

/// "OK", "WARN", "FAIL", "-".
const char* verdict_name(Verdict verdict);

/// One check.
struct Finding {
  std::string area;  ///< "cpu", "memory", "disk", "system", "cuda", "ascend", "hello": findings of an area are adjacent
  std::string name;  ///< of the check, unique in its area: "cores", "/dev/shm"
  Verdict verdict = Verdict::Ok;
  std::string finding;   ///< the fact, one sentence
  std::string evidence;  ///< the data that were read, and their source
  std::string fix{};     ///< the remedy; "" if none is needed
};

/// The findings of a machine in the order of the checks.
struct DoctorReport {
  std::vector<Finding> findings;

  /// Checks that are OK.
  size_t passed() const { return count(Verdict::Ok); }
  /// Checks that judged something: all except NotHere.
  size_t total() const { return findings.size() - count(Verdict::NotHere); }
  size_t count(Verdict verdict) const;
  /// Fail if a check fails, else Warn if one warns, else Ok.
  Verdict worst() const;

  void add(std::vector<Finding> more);

  /// "31 of 34 checks passed, 2 warnings, 1 failed".
  std::string summary() const;
  /// For a terminal: areas, findings with evidence and fix, the summary last. Lines are wrapped at `width` > 0 columns. Texts from the
  /// machine cannot control the terminal.
  std::string str(size_t width = 100) const;
  /// {passed, total, warnings, failures, verdict, findings: [{area, name, verdict, finding, evidence, fix}]}.
  Json to_json() const;
  /// One self-contained HTML page.
  std::string to_html() const;
};

}  // namespace npu_train
