#include "npu_train/tools/doctor/checks.hpp"

#include <algorithm>

#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

Tone tone_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::Ok:
      return Tone::Good;
    case Verdict::Warn:
      return Tone::Warn;
    case Verdict::Fail:
      return Tone::Bad;
    default:
      return Tone::Plain;
  }
}

}  // namespace

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::Ok:
      return "OK";
    case Verdict::Warn:
      return "WARN";
    case Verdict::Fail:
      return "FAIL";
    default:
      return "-";
  }
}

size_t DoctorReport::count(Verdict verdict) const {
  return static_cast<size_t>(std::count_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.verdict == verdict; }));
}

Verdict DoctorReport::worst() const {
  if (count(Verdict::Fail) > 0) return Verdict::Fail;
  return count(Verdict::Warn) > 0 ? Verdict::Warn : Verdict::Ok;
}

void DoctorReport::add(std::vector<Finding> more) {
  for (auto& finding : more) findings.push_back(std::move(finding));
}

std::string DoctorReport::summary() const {
  auto out = std::to_string(passed()) + " of " + std::to_string(total()) + " checks passed";
  const auto warnings = count(Verdict::Warn), failures = count(Verdict::Fail);
  if (warnings > 0) out += ", " + std::to_string(warnings) + (warnings == 1 ? " warning" : " warnings");
  if (failures > 0) out += ", " + std::to_string(failures) + " failed";
  return out;
}

Report report_of(const DoctorReport& doctor) {
  const auto count = [&](Verdict verdict) { return static_cast<int64_t>(doctor.count(verdict)); };
  const auto verdict = doctor.worst();
  Report out("npu_train doctor", Json::object({{"passed", count(Verdict::Ok)},
                                               {"total", static_cast<int64_t>(doctor.total())},
                                               {"warnings", count(Verdict::Warn)},
                                               {"failures", count(Verdict::Fail)},
                                               {"verdict", to_lower(verdict_name(verdict))}}));
  std::vector<std::string> failed;
  ReportTable findings{.layout = ReportTable::Layout::GroupedList};
  for (const auto& f : doctor.findings) {
    if (f.verdict == Verdict::Fail) failed.push_back(f.name);
    const auto word = to_lower(f.verdict == Verdict::NotHere ? "not here" : verdict_name(f.verdict));
    findings.add({both("area", f.area), both("verdict", {word, verdict_name(f.verdict), tone_of(f.verdict)}), both("name", "check", f.name),
                  both("finding", f.finding), both("evidence", "seen", f.evidence), both("fix", f.fix)});
  }
  const auto summary = doctor.summary();
  out.verdict(summary, Tone::Plain, ReportIn::Text);
  out.verdict(verdict == Verdict::Fail   ? "Training would fail on this machine or compute wrong numbers: " + join(failed) + " failed"
              : verdict == Verdict::Warn ? "Training works on this machine, with " + summary.substr(summary.find(", ") + 2)
                                         : "This machine is ready: " + summary,
              tone_of(verdict), ReportIn::Page);
  out.facts({shown("passed", std::to_string(doctor.passed()) + " of " + std::to_string(doctor.total())),
             shown("warnings", toned(count(Verdict::Warn), count(Verdict::Warn) > 0 ? Tone::Warn : Tone::Plain)),
             shown("failed", toned(count(Verdict::Fail), count(Verdict::Fail) > 0 ? Tone::Bad : Tone::Plain))},
            ReportIn::Page);
  out.table("findings", std::move(findings));
  return out;
}

}  // namespace npu_train
