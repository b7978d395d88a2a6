/// What a check of a machine found: the fact, where it was read, whether it is good, and what to do when it is not.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "npu_train/core/wrapped.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train {

enum class Verdict {
  Ok,
  Warn,     ///< training works, but slower, less safely or not as one would think
  Fail,     ///< training fails, or gives wrong numbers
  NotHere,  ///< nothing to judge: this machine has no such part
};

/// "OK", "WARN", "FAIL", "-".
const char* verdict_name(Verdict verdict);

/// One check.
struct Finding {
  std::string area;  ///< "cpu", "memory", "disk", "system", "cuda", "ascend", "hello": findings of an area stand together
  std::string name;  ///< of the check, unique in its area: "cores", "/dev/shm"
  Verdict verdict = Verdict::Ok;
  std::string finding;   ///< what is the case, one sentence
  std::string evidence;  ///< what was read, and where
  std::string fix{};     ///< what to do; "" where nothing is to be done
};

/// The findings of a machine in the order of the checks.
struct DoctorReport {
  std::vector<Finding> findings;

  /// Checks that are OK.
  size_t passed() const { return count(Verdict::Ok); }
  /// Checks that judged something: all but those that are not here.
  size_t total() const { return findings.size() - count(Verdict::NotHere); }
  size_t count(Verdict verdict) const;
  /// Fail if anything fails, else Warn if anything warns, else Ok.
  Verdict worst() const;

  void add(std::vector<Finding> more);

  /// "31 of 34 checks passed, 2 warnings, 1 failed".
  std::string summary() const;
  /// For a terminal: areas, findings with evidence and fix, the summary last. Lines are broken at `width` > 0 columns. What came from the
  /// machine cannot act on the terminal.
  std::string str(size_t width = 100) const;
  /// {passed, total, warnings, failures, verdict, findings: [{area, name, verdict, finding, evidence, fix}]}.
  Json to_json() const;
  /// One HTML page that needs nothing else.
  std::string to_html() const;
};

}  // namespace npu_train
