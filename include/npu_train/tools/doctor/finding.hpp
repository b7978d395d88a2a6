/// The result of a check: the fact, its source, the verdict, and the remedy.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "npu_train/tools/report/report.hpp"

namespace npu_train {

enum class Verdict {
  Ok,
  Warn,     ///< training works, but slower, less safely or differently than expected
  Fail,     ///< training fails, or computes wrong numbers
  NotHere,  ///< not applicable: this machine has no such part
};

/// Returns "OK", "WARN", "FAIL" or "-".
const char* verdict_name(Verdict verdict);

/// One check.
struct Finding {
  std::string area;  ///< such as "cpu", "memory", "disk", "system", "cuda", "ascend", "hello"; findings of an area are adjacent
  std::string name;  ///< name of the check, unique in its area: "cores", "/dev/shm"
  Verdict verdict = Verdict::Ok;
  std::string finding;   ///< the fact, one sentence
  std::string evidence;  ///< the data that were read, and their source
  std::string fix{};     ///< the remedy; "" if none is needed
};

/// The findings of a machine in the order of the checks.
struct DoctorReport {
  std::vector<Finding> findings;

  /// Number of checks that are OK.
  size_t passed() const { return count(Verdict::Ok); }
  /// Number of checks with a verdict: all except NotHere.
  size_t total() const { return findings.size() - count(Verdict::NotHere); }
  size_t count(Verdict verdict) const;
  /// Returns Fail if a check fails, else Warn if one warns, else Ok.
  Verdict worst() const;

  void add(std::vector<Finding> more);

  /// Returns "31 of 34 checks passed, 2 warnings, 1 failed".
  std::string summary() const;
};

/// Reports areas, findings with evidence and fix, and the summary. JSON: {passed, total, warnings, failures, verdict, findings: [{area,
/// verdict, name, finding, evidence, fix}]}.
Report report_of(const DoctorReport& doctor);

}  // namespace npu_train
