#include "npu_train/tools/bench/bench_report.hpp"

#include <algorithm>
#include <cmath>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/csv.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train {
namespace {

constexpr const char* kFormat = "npu_train bench 1";

const char* verdict_word(SpeedRatio::Verdict verdict) {
  switch (verdict) {
    case SpeedRatio::Verdict::Faster:
      return "faster";
    case SpeedRatio::Verdict::Slower:
      return "slower";
    case SpeedRatio::Verdict::NoDifference:
      return "no difference";
    case SpeedRatio::Verdict::TooFewPairs:
      break;
  }
  return "too few pairs";
}

Json to_json(const BenchRow& row) {
  auto out = Json::object({{"section", row.section}, {"name", row.name}});
  for (const auto& [key, value] : row.numbers) out.set(key, value);
  if (!row.failure.empty()) out.set("failure", row.failure);
  if (row.ratio)
    out.set("ratio", Json::object({{"value", row.ratio->value},
                                   {"median", row.ratio->median},
                                   {"low", row.ratio->low},
                                   {"high", row.ratio->high},
                                   {"pairs", row.ratio->pairs},
                                   {"verdict", verdict_word(row.ratio->verdict)}}));
  if (row.samples.size() > 0) out.set("seconds", detail::json_list(row.samples.seconds));
  return out;
}

// Reports of earlier versions count images instead of samples.
std::string new_name(const std::string& key) {
  if (key == "img_per_s") return "samples_per_s";
  return key == "img_per_s_host" ? "samples_per_s_host" : key;
}

BenchRow row_of(const Json& json, const std::string& where) {
  BenchRow out{.section = json.at("section", where).text(where), .name = json.at("name", where).text(where)};
  for (const auto& [key, value] : json.members(where)) {
    if (key == "section" || key == "name" || key == "ratio") continue;
    if (key == "failure")
      out.failure = value.text(where + ": failure");
    else if (key == "seconds")
      for (const auto& s : value.items(where + ": seconds")) out.samples.seconds.push_back(s.number(where + ": seconds"));
    else
      out.numbers.emplace_back(new_name(key), value.number(where + ": " + key));
  }
  check(std::all_of(out.samples.seconds.begin(), out.samples.seconds.end(), [](double s) { return std::isfinite(s) && s > 0; }),
        ErrorKind::Data, "bench", where, ": the seconds of ", out.section, " ", out.name, " must be positive numbers");
  return out;
}

}  // namespace

double BenchRow::number(const std::string& key) const {
  for (const auto& [known, value] : numbers)
    if (known == key) return value;
  return std::nan("");
}

const BenchRow* BenchReport::row(const std::string& section, const std::string& name) const {
  for (const auto& r : rows)
    if (r.section == section && (name.empty() || r.name == name)) return &r;
  return nullptr;
}

Json to_json(const BenchReport& report) {
  auto rows = Json::array(), facts = Json::object();
  for (const auto& row : report.rows) rows.push_back(to_json(row));
  for (const auto& [name, value] : report.environment) facts.set(name, value);
  return Json::object({{"format", kFormat},
                       {"model", report.model},
                       {"device", report.device},
                       {"precision", report.precision},
                       {"input", report.input},
                       {"data", report.data},
                       {"parameters", report.parameters},
                       {"flops_per_image", report.flops_per_image},
                       {"gemm_flops", report.gemm_flops},
                       {"copy_bytes_per_second", report.copy_bytes_per_second},
                       {"rows", std::move(rows)},
                       {"notes", detail::json_list(report.notes)},
                       {"environment", std::move(facts)}});
}

BenchReport read_bench_report(const std::filesystem::path& path) {
  const auto json = load_json(path);
  const auto where = path.string();
  const auto* format = json.find("format");
  check(format != nullptr && format->is_text() && format->text(where) == kFormat, ErrorKind::Data, "bench", where,
        ": not a benchmark report; hint: npu_tool bench CONFIG --out FILE writes one");
  const auto text = [&](const char* key) { return json.at(key, where).text(where + ": " + key); };
  BenchReport out{.model = text("model"), .device = text("device"), .precision = text("precision")};
  for (const auto& [key, into] : {std::pair{"input", &out.input}, std::pair{"data", &out.data}})
    if (const auto* found = json.find(key)) *into = found->text(where + ": " + key);  // missing in older reports
  out.parameters = json.at("parameters", where).integer(where + ": parameters");
  out.flops_per_image = json.at("flops_per_image", where).integer(where + ": flops_per_image");
  out.gemm_flops = json.at("gemm_flops", where).number(where + ": gemm_flops");
  out.copy_bytes_per_second = json.at("copy_bytes_per_second", where).number(where + ": copy_bytes_per_second");
  for (const auto& row : json.at("rows", where).items(where + ": rows")) out.rows.push_back(row_of(row, where + ": rows"));
  for (const auto& note : json.at("notes", where).items(where + ": notes")) out.notes.push_back(note.text(where + ": notes"));
  for (const auto& [name, value] : json.at("environment", where).members(where + ": environment"))
    out.environment[name] = value.text(where + ": environment");
  return out;
}

std::string to_csv(const BenchReport& report) {
  std::string out = csv_row({"section", "name", "number", "value"});
  for (const auto& row : report.rows) {
    if (!row.failure.empty()) out += csv_row({row.section, row.name, "failure", row.failure});
    for (const auto& [key, value] : row.numbers) out += csv_row({row.section, row.name, key, shortest(value)});
    if (!row.ratio) continue;
    const auto& r = *row.ratio;
    for (const auto& [key, value] :
         {std::pair{"ratio", r.value}, {"ratio_low", r.low}, {"ratio_high", r.high}, {"ratio_pairs", static_cast<double>(r.pairs)}})
      out += csv_row({row.section, row.name, key, shortest(value)});
    out += csv_row({row.section, row.name, "verdict", verdict_word(r.verdict)});
  }
  return out;
}

}  // namespace npu_train
