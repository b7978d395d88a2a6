#include "run_record.hpp"

#include <algorithm>
#include <set>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/environment.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/tools/align/monitor.hpp"

namespace npu_train::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhere = "report";

// Reads metrics.csv up to its last line end, because a run that is writing, or was killed, leaves an incomplete row.
CsvTable read_rows(const fs::path& path) {
  const CsvLimits limits{.bytes = uint64_t{1} << 30, .cells = 50'000'000};
  auto text = read_file(path, limits.bytes);
  text.resize(text.rfind('\n') + 1);  // npos + 1 is 0: nothing remains without a line end
  auto rows = parse_csv(text, path.string(), limits);
  for (const char* column : {"epoch", "step", "phase", "loss", "lr"}) rows.index(column);
  return rows;
}

// Returns the origin of the last explained overflow, and the advice.
std::vector<std::string> read_overflow(const fs::path& path) {
  if (!fs::exists(path)) return {};
  const auto report = load_json(path);
  const auto where = path.string();
  const auto& source = report.at("source", where);
  const auto text = [&](const char* key) { return source.at(key, where).text(where); };
  std::string origin = str_cat("the last overflow that was explained is that of window ", report.at("attempt", where).integer(where),
                               ", counted from 0: ", text("phase"));
  for (const char* key : {"layer", "op"})
    if (const auto name = text(key); !name.empty()) origin += ", " + name;
  std::vector<std::string> out = {origin};
  for (const auto& advice : report.at("advice", where).items(where)) out.push_back(advice.text(where));
  return out;
}

// Reads the monitor of a run. `config`: the run's configuration, which has the width of the bands.
std::optional<MonitorRecord> read_monitor_of(const fs::path& folder, const ConfigNode& config) {
  const auto path = folder / "monitor.csv";
  if (!fs::exists(path)) return std::nullopt;
  const auto* section = config.find("monitor");
  const auto* band = section != nullptr && section->is_map() ? section->find("band") : nullptr;
  const auto least = band != nullptr && band->is_scalar() ? decimal_number(band->scalar()) : std::nullopt;
  return MonitorRecord{.log = read_monitor_log(path), .exits = band_exits(path, least.value_or(MonitorOptions().band))};
}

RunRecord read_run(const fs::path& folder) {
  for (const char* file : {"config.yaml", "metrics.csv"})
    check(fs::is_regular_file(folder / file), ErrorKind::Data, kWhere, folder.string(), ": not the folder of a run: it has no ", file,
          "; hint: a run's folder is, for example, outputs/NAME/version_0, and has metrics.csv if output.logger contains csv");
  RunRecord out{.config = load_yaml((folder / "config.yaml").string()), .rows = read_rows(folder / "metrics.csv")};
  out.steps = out.rows.numbers("step");
  if (fs::exists(folder / "history.json")) out.history = load_json(folder / "history.json");
  if (fs::exists(folder / "environment.json")) out.environment = read_environment(folder / "environment.json");
  try {
    out.monitor = read_monitor_of(folder, out.config);
  } catch (const Error& e) {  // the other records are still reported; a run that is killed at its start leaves an empty file
    out.monitor_error = e.what();
  }
  out.diverged = fs::exists(folder / "diverged");
  out.overflow = read_overflow(folder / "overflow_report.json");
  return out;
}

// Names the runs by the parts in which their folders differ: "a/version_0", "b/version_0".
void name_runs(std::vector<RunRecord>& runs, const std::vector<fs::path>& folders) {
  if (runs.size() == 1) {
    runs[0].name = folders[0].string();
    return;
  }
  const auto same_start = [&](size_t parts) {
    return std::all_of(folders.begin(), folders.end(), [&](const fs::path& p) {
      return std::distance(p.begin(), p.end()) > static_cast<std::ptrdiff_t>(parts + 1) &&
             *std::next(p.begin(), static_cast<std::ptrdiff_t>(parts)) ==
                 *std::next(folders[0].begin(), static_cast<std::ptrdiff_t>(parts));
    });
  };
  size_t common = 0;
  while (same_start(common)) ++common;
  for (size_t i = 0; i < runs.size(); ++i) {
    fs::path rest;
    for (auto part = std::next(folders[i].begin(), static_cast<std::ptrdiff_t>(common)); part != folders[i].end(); ++part) rest /= *part;
    runs[i].name = rest.string();
  }
}

}  // namespace

std::vector<RunRecord> read_runs(const std::vector<std::string>& folders) {
  std::vector<fs::path> paths;
  std::set<fs::path> seen;
  std::vector<RunRecord> out;
  for (const auto& folder : folders) {
    auto path = fs::path(folder).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    check(fs::is_directory(path), ErrorKind::Data, kWhere, folder, ": no such folder");
    check(seen.insert(fs::canonical(path)).second, ErrorKind::Usage, kWhere, folder, ": given twice");
    out.push_back(read_run(path));
    paths.push_back(std::move(path));
  }
  name_runs(out, paths);
  return out;
}

}  // namespace npu_train::cli
