#include "earlier_logs.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "npu_train/core/error.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/run_files.hpp"

namespace npu_train::detail {
namespace {

namespace fs = std::filesystem;

struct Row {
  int64_t epoch = 0, step = 0;
  std::string_view phase;
  bool skipped = false;
};

std::optional<int64_t> integer(std::string_view cell) {
  const auto value = whole_number(cell);
  return value && *value >= 0 ? value : std::nullopt;
}

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> out;
  for (size_t begin = 0; begin <= line.size();) {
    const auto end = std::min(line.find(',', begin), line.size());
    out.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

/// Parses a row; nullopt for a line that RunFiles cannot have written.
std::optional<Row> parse_row(std::string_view line, const std::vector<std::string>& columns) {
  const auto cells = cells_of(line);
  if (cells.size() != columns.size()) return std::nullopt;
  Row row;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] == "phase") row.phase = cells[i];
    if (columns[i] == "skipped") row.skipped = cells[i] == "1";
    if (columns[i] != "epoch" && columns[i] != "step") continue;
    const auto value = integer(cells[i]);
    if (!value) return std::nullopt;
    (columns[i] == "epoch" ? row.epoch : row.step) = *value;
  }
  if (row.phase != "train" && row.phase != "val" && row.phase != "epoch" && row.phase != "log") return std::nullopt;
  return row;
}

/// Returns the columns of a header; nullopt for a header that RunFiles cannot have written. In an earlier version, samples_per_second was
/// called images_per_second.
std::optional<std::vector<std::string>> parse_header(std::string_view line) {
  std::vector<std::string> out;
  std::set<std::string_view> names;
  for (const auto cell : cells_of(line)) {
    if (cell.empty() || !names.insert(cell).second) return std::nullopt;
    out.emplace_back(cell == "images_per_second" ? "samples_per_second" : cell);
  }
  const bool ours = out.size() > 3 && out[0] == "epoch" && out[1] == "step" && out[2] == "phase";
  return ours ? std::optional(out) : std::nullopt;
}

/// Returns `line`, a row of a file with the columns `from`, as a row with the columns `to`, which contain them.
std::string with_columns(std::string_view line, const std::vector<std::string>& from, const std::vector<std::string>& to) {
  if (from == to) return std::string(line);
  const auto cells = cells_of(line);
  std::string out;
  for (size_t i = 0; i < to.size(); ++i) {
    const auto at = static_cast<size_t>(std::find(from.begin(), from.end(), to[i]) - from.begin());
    if (i > 0) out += ',';
    if (at < cells.size()) out += cells[at];
  }
  return out;
}

/// Returns whether a row was written before the state of `loop` was saved, or belongs to a validation at the step of that state. A state
/// that was saved at the last step of an epoch precedes the end of the epoch, which then runs again. Each skipped step has a row; `skips`
/// counts them for comparison with the loop's count.
bool is_earlier(const TrainLoop& loop, const Row& row, int64_t& skips) {
  if (row.step > loop.global_step()) return false;
  if (row.phase == "epoch") return row.epoch < loop.epoch();
  if (row.phase == "val") return true;
  return !row.skipped || ++skips <= loop.skipped_steps();
}

}  // namespace

std::string earlier_rows(const TrainLoop& loop, const fs::path& path, std::vector<std::string>& columns) {
  std::string kept, line, damage;
  int64_t skips = 0, number = 1;
  {
    std::ifstream in(path);
    const auto written = std::getline(in, line) ? parse_header(line) : std::nullopt;
    if (!written) damage = "its first line does not name its columns";
    for (const auto& name : written.value_or(std::vector<std::string>()))
      if (std::find(columns.begin(), columns.end(), name) == columns.end()) columns.push_back(name);
    while (written && std::getline(in, line) && !in.eof()) {  // a last line without a line end was cut off when the process was killed
      ++number;
      const auto row = parse_row(line, *written);
      if (!row && damage.empty()) damage = "line " + std::to_string(number) + " cannot be read";
      if (row && is_earlier(loop, *row, skips)) kept += with_columns(line, *written, columns) + "\n";
    }
  }
  if (!damage.empty()) set_aside(path, damage);
  return kept;
}

std::vector<LoggedRow> rows_from(int64_t step, const std::string& rows, const std::vector<std::string>& columns) {
  std::vector<LoggedRow> out;
  std::istringstream in(rows);
  for (std::string line; std::getline(in, line);) {
    const auto row = parse_row(line, columns);
    if (!row || row->step < step) continue;
    out.push_back({.phase = std::string(row->phase), .epoch = row->epoch, .step = row->step});
    const auto cells = cells_of(line);
    for (size_t i = 3; i < cells.size(); ++i)  // the first three are epoch, step and phase
      if (double value = 0; std::from_chars(cells[i].data(), cells[i].data() + cells[i].size(), value).ec == std::errc())
        out.back().values.emplace_back(columns[i], value);
  }
  return out;
}

Json earlier_epochs(const TrainLoop& loop, const fs::path& path) {
  auto kept = Json::array();
  try {
    const auto where = path.string();
    const auto document = load_json(path);
    for (const auto& epoch : document.at("epochs", where).items(where))
      if (epoch.at("epoch", where).integer(where) < loop.epoch()) kept.push_back(epoch);
    return kept;
  } catch (const Error& e) {
    set_aside(path, std::string("cannot be read (") + e.what() + ")");
    return Json::array();
  }
}

}  // namespace npu_train::detail
