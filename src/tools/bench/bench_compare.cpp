#include <algorithm>
#include <cmath>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/bench/bench_report.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {
namespace {

/// Returns the factor by which the machine's own speed differed between the reports; 1 if it was not measured.
double drift(const BenchReport& a, const BenchReport& b) {
  double out = 1;
  for (const auto& [x, y] : {std::pair{a.gemm_flops, b.gemm_flops}, std::pair{a.copy_bytes_per_second, b.copy_bytes_per_second}})
    if (x > 0 && y > 0) out = std::max({out, x / y, y / x});
  return out;
}

bool enough(const Samples& s) { return static_cast<int64_t>(s.size()) >= kLeastForVerdict; }

SpeedRatio::Verdict judge(const BenchDifference& d, const BenchRow& a, const BenchRow& b) {
  if (!enough(a.samples) || !enough(b.samples)) return SpeedRatio::Verdict::TooFewPairs;
  if (d.low > 1) return SpeedRatio::Verdict::Faster;
  if (d.high < 1) return SpeedRatio::Verdict::Slower;
  return SpeedRatio::Verdict::NoDifference;
}

std::string verdict_text(const BenchDifference& d) {
  if (d.verdict == SpeedRatio::Verdict::Faster) return "A is faster";
  if (d.verdict == SpeedRatio::Verdict::TooFewPairs) return "too few measurements for a verdict";
  return d.verdict == SpeedRatio::Verdict::Slower ? "A is slower" : "no difference beyond the scatter";
}

std::string work_of(const BenchReport& r) {
  std::string out = (r.model.empty() ? "no model" : r.model) + " on " + r.device + " in " + r.precision;
  out += " (" + with_commas(r.parameters) + " parameters, " + short_number(static_cast<double>(r.flops_per_image) * 1e-9) + " GFLOP";
  return out + (r.data.empty() ? "" : ", " + r.data) + ")";
}

void note_environments(const BenchReport& a, const BenchReport& b, BenchComparison& out) {
  for (const auto& [name, value] : a.environment) {
    const auto other = b.environment.find(name);
    if (other == b.environment.end() || other->second == value) continue;
    out.notes.push_back(name + " is " + value + " in A, " + other->second + " in B");
  }
}

}  // namespace

bool same_work(const BenchReport& a, const BenchReport& b) {
  // A report whose sections read no data may not know the number of samples.
  const auto name = [](const std::string& data) { return data.substr(0, data.find(", ")); };
  const bool same_data = a.data == b.data || (name(a.data) == name(b.data) && (a.data == name(a.data) || b.data == name(b.data)));
  return same_data && a.model == b.model && a.device == b.device && a.precision == b.precision && a.parameters == b.parameters &&
         a.flops_per_image == b.flops_per_image;
}

bool BenchComparison::passed() const {
  return std::none_of(rows.begin(), rows.end(), [](const BenchDifference& d) { return d.verdict == SpeedRatio::Verdict::Slower; });
}

BenchComparison compare_bench_reports(const BenchReport& a, const BenchReport& b) {
  check(same_work(a, b), ErrorKind::Usage, "bench", "A measures ", work_of(a), ", B ", work_of(b),
        "; allowed: two reports of the same work");
  BenchComparison out{.a = a.model, .b = b.model};
  const auto machine = drift(a, b);
  for (const auto& row : a.rows) {
    const auto* other = b.row(row.section, row.name);
    if (other == nullptr) {
      out.notes.push_back(row.section + " " + row.name + " is only in A");
      continue;
    }
    if (row.samples.size() == 0 || other->samples.size() == 0) {
      const bool failed = !row.failure.empty() || !other->failure.empty();
      if (failed && row.section != "power")
        out.notes.push_back(row.section + " " + row.name + " failed in " +
                            (row.failure.empty()      ? "B"
                             : other->failure.empty() ? "A"
                                                      : "both"));
      continue;
    }
    BenchDifference d{.section = row.section, .name = row.name};
    d.a_ms = 1e3 * row.samples.median();
    d.b_ms = 1e3 * other->samples.median();
    d.value = d.b_ms / d.a_ms;
    const auto [a_low, a_high] = row.samples.median_interval();
    const auto [b_low, b_high] = other->samples.median_interval();
    d.low = b_low / a_high / machine;
    d.high = b_high / a_low * machine;
    d.verdict = judge(d, row, *other);
    out.rows.push_back(d);
  }
  for (const auto& row : b.rows)
    if (a.row(row.section, row.name) == nullptr) out.notes.push_back(row.section + " " + row.name + " is only in B");
  check(!out.rows.empty(), ErrorKind::Usage, "bench",
        "the reports have no common measurement with times; hint: make both with the same --what");
  if (machine > 1.05)
    out.notes.push_back("the speed of the machine differed by a factor of " + short_number(machine, 3) + " between the two reports");
  note_environments(a, b, out);
  return out;
}

Report report_of(const BenchComparison& c) {
  Report out("Comparison of benchmarks of " + c.a, Json::object({{"passed", c.passed()}}));
  out.verdict(c.passed() ? "no row of A is slower" : "A IS SLOWER", c.passed() ? Tone::Good : Tone::Bad);
  ReportTable table;
  for (const auto& d : c.rows) {
    const auto tone = d.verdict == SpeedRatio::Verdict::Slower ? Tone::Bad : Tone::Plain;
    table.add({both("verdict", toned(verdict_text(d), tone)), both("section", d.section), both("name", d.name),
               both("a_ms", "A ms", d.a_ms), both("b_ms", "B ms", d.b_ms), both("speed", "speed of A", number_value(d.value, 3)),
               both("low", number_value(d.low, 3)), both("high", number_value(d.high, 3))});
  }
  out.table("rows", std::move(table));
  out.notes(c.notes);
  return out;
}

}  // namespace npu_train
