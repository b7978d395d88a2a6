#include "npu_train/tools/doctor/finding.hpp"

#include <algorithm>

#include "npu_train/core/text.hpp"
#include "npu_train/tools/report/html_page.hpp"

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

std::string finding_text(const Finding& f, size_t width) {
  constexpr size_t kVerdict = 4;
  const std::string verdict = verdict_name(f.verdict), indent(8, ' ');
  const auto first = "  " + verdict + std::string(kVerdict - verdict.size() + 2, ' ');
  std::string out = wrapped(f.name + ": " + f.finding, first, indent, width);
  if (!f.evidence.empty()) out += wrapped(f.evidence, indent + "seen: ", indent + "      ", width);
  if (!f.fix.empty()) out += wrapped(f.fix, indent + "fix:  ", indent + "      ", width);
  return out;
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

std::string DoctorReport::str(size_t width) const {
  std::string out = summary() + "\n", area;
  for (const auto& f : findings) {
    if (f.area != area) out += "\n" + wrapped(f.area, "", "", 0);
    area = f.area;
    out += finding_text(f, width);
  }
  return out;
}

Json DoctorReport::to_json() const {
  Json list = Json::array();
  for (const auto& f : findings)
    list.push_back(Json::object({{"area", f.area},
                                 {"name", f.name},
                                 {"verdict", to_lower(f.verdict == Verdict::NotHere ? "not here" : verdict_name(f.verdict))},
                                 {"finding", f.finding},
                                 {"evidence", f.evidence},
                                 {"fix", f.fix}}));
  return Json::object({{"passed", static_cast<int64_t>(passed())},
                       {"total", static_cast<int64_t>(total())},
                       {"warnings", static_cast<int64_t>(count(Verdict::Warn))},
                       {"failures", static_cast<int64_t>(count(Verdict::Fail))},
                       {"verdict", to_lower(verdict_name(worst()))},
                       {"findings", list}});
}

std::string DoctorReport::to_html() const {
  HtmlPage page("npu_train doctor");
  std::vector<std::string> failed;
  for (const auto& f : findings)
    if (f.verdict == Verdict::Fail) failed.push_back(f.name);
  const auto verdict = worst();
  page.paragraph(verdict == Verdict::Fail   ? "Training would fail on this machine or compute wrong numbers: " + join(failed) + " failed."
                 : verdict == Verdict::Warn ? "Training works on this machine, with " + summary().substr(summary().find(", ") + 2) + "."
                                            : "This machine is ready: " + summary() + ".",
                 tone_of(verdict));
  page.facts({{"passed", std::to_string(passed()) + " of " + std::to_string(total())},
              {"warnings", std::to_string(count(Verdict::Warn)), count(Verdict::Warn) > 0 ? Tone::Warn : Tone::Plain},
              {"failed", std::to_string(count(Verdict::Fail)), count(Verdict::Fail) > 0 ? Tone::Bad : Tone::Plain}});
  HtmlTable table{.columns = {{"area"}, {"check"}, {"verdict"}, {"finding"}, {"evidence"}, {"fix"}}};
  for (const auto& f : findings)
    table.rows.push_back({{f.area}, {f.name}, {verdict_name(f.verdict), {}, tone_of(f.verdict)}, {f.finding}, {f.evidence}, {f.fix}});
  page.table(table);
  return page.str();
}

}  // namespace npu_train
