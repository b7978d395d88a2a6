#include "npu_train/tools/analyze/msprof.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "npu_train/core/error.hpp"
#include "npu_train/core/facts_table.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/csv.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/report/report.hpp"
#include "tools/analyze/facts/kernels.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMsprof = "msprof";
constexpr int64_t kMostCalls = 1'000'000'000'000'000;  // limit for an operator or a kernel, so that the sum of two does not overflow
constexpr CsvLimits kTableLimits{.bytes = uint64_t{1} << 30, .cells = 16'000'000};

// Returns the name in lower case without "_", the prefixes of aclnn and the version: "aclnnInplaceAddV2" becomes "add".
std::string plain_name(std::string_view name) {
  for (const std::string_view prefix : {"aclnn", "Inplace"})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  auto end = name.size();
  while (end > 0 && std::isdigit(static_cast<unsigned char>(name[end - 1])) != 0) --end;
  if (end < name.size() && end > 1 && name[end - 1] == 'V') name = name.substr(0, end - 1);
  auto out = to_lower(name);
  std::erase(out, '_');
  return out;
}

const std::map<std::string, std::string>& families() {
  static const auto all = [] {
    std::map<std::string, std::string> out;
    for (const auto& row : detail::facts_rows(facts::kernels, "kernels.tsv", 3))
      for (const auto column : {row[1], row[2]})
        for (const auto name : detail::split_view(column, ' ')) out.emplace(plain_name(name), row[0]);
    return out;
  }();
  return all;
}

std::string family_of(std::string_view name) {
  const auto plain = plain_name(name);
  const auto found = families().find(plain);
  return found == families().end() ? plain : found->second;
}

double microseconds(const CsvTable& table, size_t row, size_t column) {
  const auto& text = table.rows[row][column];
  const auto value = text == "N/A" || text.empty() ? 0 : decimal_number(text);
  check(value && *value >= 0 && std::isfinite(*value), ErrorKind::Data, kMsprof, table.source, ":", table.lines[row], ": '", text,
        "' in the column ", table.columns[column], "; a time must be a number of microseconds");
  return *value;
}

int64_t launches(const CsvTable& table, size_t row, size_t column) {
  const auto value = decimal_number(table.rows[row][column]);
  check(value && *value >= 0 && *value < 1e15 && *value == std::floor(*value), ErrorKind::Data, kMsprof, table.source, ":",
        table.lines[row], ": '", table.rows[row][column], "' in the column ", table.columns[column], "; it must be a number of launches");
  return static_cast<int64_t>(*value);
}

// Returns the index of the first of the columns `names` that the table has; Error(Data) if it has none of them.
size_t column_of(const CsvTable& table, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (table.has(name)) return table.index(name);
  throw Error(ErrorKind::Data, kMsprof,
              table.source + ": there is no column " + *names.begin() + "; it must be op_summary_*.csv or op_statistic_*.csv of msprof");
}

// Sums of a table's rows, by type, function and core.
using KernelSums = std::map<std::tuple<std::string, std::string, std::string>, DeviceKernel>;
void add_rows(const CsvTable& table, KernelSums& sums) {
  const bool summary = table.has("Op Name");
  const auto type = column_of(table, {"OP Type", "Type"}), core = column_of(table, {"Task Type", "Core Type"});
  const auto time = column_of(table, {"Task Duration(us)", "Total Time(us)", "Total Time"});
  const auto name = summary ? table.index("Op Name") : type;
  const auto count = summary ? type : column_of(table, {"Count"});
  check(!table.rows.empty(), ErrorKind::Data, kMsprof, table.source, ": no rows; hint: give a table of a run that used the NPU");
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const auto& row = table.rows[i];
    const bool typed = !row[type].empty() && row[type] != "N/A";
    const auto& shown = typed ? row[type] : row[name];
    const auto function = row[name].starts_with("aclnn") ? row[name].substr(0, row[name].find('_')) : "";
    auto& sum = sums[{shown, function, row[core]}];
    sum.type = shown;
    sum.function = function;
    sum.core = row[core];
    sum.count += summary ? 1 : launches(table, i, count);
    check(sum.count < kMostCalls, ErrorKind::Data, kMsprof, table.source, ":", table.lines[i], ": more than 1e15 launches of ", shown);
    sum.seconds += 1e-6 * microseconds(table, i, time);
  }
}

// Returns the sorted files of one kind below a folder. Links are not followed.
std::vector<fs::path> files_below(const fs::path& folder, const std::string& kind) {
  constexpr int kDeepest = 4;
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied, error), end; !error && it != end;
       it.increment(error)) {
    if (it.depth() >= kDeepest) it.disable_recursion_pending();
    const auto name = it->path().filename().string();
    std::error_code ignored;
    if (name.starts_with(kind) && name.ends_with(".csv") && fs::is_regular_file(it->symlink_status(ignored))) out.push_back(it->path());
  }
  check(!error, ErrorKind::Data, kMsprof, folder.string(), ": cannot be read completely: ", error.message());
  std::sort(out.begin(), out.end());
  return out;
}

struct MergedRow {
  std::set<std::string> operators, kernels, cores;
  int64_t calls = 0, launches = 0;
  double host = 0, device = 0;
};

std::string listed(const std::set<std::string>& names) { return join(std::vector<std::string>(names.begin(), names.end())); }

std::vector<MergedRow> merged_rows(const Json& profile, const std::string& where, const MsprofTable& table) {
  const auto* operators = profile.find("operators");
  check(operators != nullptr, ErrorKind::Usage, kMsprof, where,
        ": the profile has no operators; hint: record it with trainer.profiler=chrome");
  std::map<std::string, MergedRow> rows;
  for (const auto& op : operators->items(where)) {
    const auto& name = op.at("name", where).text(where);
    auto& row = rows[family_of(name)];
    row.operators.insert(name);
    const auto calls = op.at("calls", where).integer(where);
    check(calls >= 0 && calls < kMostCalls && row.calls + calls < kMostCalls, ErrorKind::Data, kMsprof, where, ": ", calls, " calls of ",
          name, "; there must be less than 1e15 of an operator");
    row.calls += calls;
    row.host += op.at("seconds", where).number(where);
  }
  for (const auto& kernel : table.kernels) {
    auto& row = rows[family_of(kernel.function.empty() ? kernel.type : kernel.function)];
    row.kernels.insert(kernel.type);
    row.cores.insert(kernel.core);
    row.launches += kernel.count;
    check(row.launches < kMostCalls, ErrorKind::Data, kMsprof, "more than 1e15 launches of ", kernel.type);
    row.device += kernel.seconds;
  }
  std::vector<MergedRow> out;
  for (auto& [family, row] : rows) out.push_back(std::move(row));
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return std::pair(b.device, b.host) < std::pair(a.device, a.host); });
  return out;
}

ReportValue milliseconds_value(double seconds) { return {seconds, short_number(1e3 * seconds, 3) + " ms"}; }

}  // namespace

MsprofTable read_msprof(const fs::path& path) {
  std::error_code error;
  std::vector<fs::path> files = {path};
  if (fs::is_directory(path, error)) {
    files = files_below(path, "op_summary");
    if (files.empty()) files = files_below(path, "op_statistic");
    check(!files.empty(), ErrorKind::Usage, kMsprof, path.string(),
          ": there is no op_summary_*.csv or op_statistic_*.csv; hint: msprof writes them into PROF_*/mindstudio_profiler_output");
  }
  MsprofTable out;
  KernelSums sums;
  for (const auto& file : files) {
    add_rows(read_csv(file, kTableLimits), sums);
    out.files.push_back(file.string());
  }
  for (auto& [key, kernel] : sums) out.kernels.push_back(std::move(kernel));
  std::stable_sort(out.kernels.begin(), out.kernels.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return out;
}

Report merged_report(const Json& profile, const std::string& where, const MsprofTable& table) {
  const auto rows = merged_rows(profile, where, table);
  double host = 0, device = 0, on_cpu = 0;
  for (const auto& row : rows) host += row.host, device += row.device;
  for (const auto& kernel : table.kernels)
    if (kernel.core == "AI_CPU") on_cpu += kernel.seconds;
  Report out(
      "Operators of the host and of the device",
      Json::object(
          {{"files", detail::json_list(table.files)}, {"host_seconds", host}, {"device_seconds", device}, {"ai_cpu_seconds", on_cpu}}));
  out.say(short_number(1e3 * device, 3) + " ms on the device (msprof, " + std::to_string(table.files.size()) +
          (table.files.size() == 1 ? " file" : " files") + "), and " + short_number(1e3 * host, 3) +
          " ms on the host in the traced windows of the profile: compare shares, since msprof records the complete program");
  if (table.files.size() > 1) out.remarks("merged", table.files);
  if (on_cpu > 0)
    out.remarks("advice",
                {percentage(on_cpu / device) + " of the device's time is on the AI CPU, which is slow: look for fp64, int64 "
                                               "and operators without a kernel (npu_tool analyze)"},
                Tone::Warn);
  ReportTable merged{.order = "longest on the device first"};
  const auto share = [](double part, double whole) { return share_value(whole > 0 ? part / whole : 0); };
  for (const auto& row : rows)
    merged.add({both("operators", "operator", {detail::json_list({row.operators.begin(), row.operators.end()}), listed(row.operators)}),
                both("calls", row.calls), both("host_seconds", "host", milliseconds_value(row.host)),
                both("host_share", "share", share(row.host, host)),
                both("kernels", "kernel", {detail::json_list({row.kernels.begin(), row.kernels.end()}), listed(row.kernels)}),
                both("launches", row.launches), both("device_seconds", "device", milliseconds_value(row.device)),
                both("device_share", "of the device", share(row.device, device)),
                both("cores", "core", {detail::json_list({row.cores.begin(), row.cores.end()}), listed(row.cores)})});
  out.table("rows", std::move(merged));
  return out;
}

}  // namespace npu_train
