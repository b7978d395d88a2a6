#include "npu_train/tools/align/history.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"
#include "tools/align/history_table.hpp"
#include "tools/align/report_rows.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;
using detail::HistoryTable;

constexpr const char* kHistory = "history";
constexpr double kNotLogged = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kMostOtherValues = 16'000'000;
constexpr uint64_t kLargestLog = uint64_t{256} << 20;

// Common names of columns, the most reliable first.
constexpr std::array kStepNames = {"step",
                                   "global_step",
                                   "iter",
                                   "iteration",
                                   "it",
                                   "_step",
                                   "steps",
                                   "iterations",
                                   "batch",
                                   "train/global_step",
                                   "trainer/global_step",
                                   "train/step",
                                   "epoch"};
constexpr std::array kLossNames = {"loss",       "train_loss",      "train/loss",      "training_loss",    "loss/train",
                                   "loss_train", "train_loss_step", "train/loss_step", "train/train_loss", "train_loss_epoch",
                                   "batch_loss", "avg_loss",        "total_loss",      "lm loss",          "lm_loss",
                                   "value"};
constexpr std::array kLrNames = {"lr", "learning_rate", "train/lr", "train/learning_rate", "learning-rate", "lr_0"};

std::vector<std::string> names_of(const HistoryTable& table) {
  std::vector<std::string> out;
  for (const auto& column : table.columns) out.push_back(column.name);
  return out;
}

std::string in_any_case(const HistoryTable& table, const std::string& name) {
  for (const auto& column : table.columns)
    if (to_lower(column.name) == name) return column.name;
  return "";
}

template <size_t n>
std::string known_name(const HistoryTable& table, const std::array<const char*, n>& known) {
  for (const char* name : known)
    if (auto found = in_any_case(table, name); !found.empty()) return found;
  return "";
}

std::string shown(const std::string& text) { return detail::visible_start(text, 60); }

[[noreturn]] void no_column(const HistoryTable& table, const std::string& source, const std::string& what, const std::string& given) {
  const auto all = names_of(table);
  const auto listed = [](std::vector<std::string> names, size_t most) {
    std::transform(names.begin(), names.end(), names.begin(), shown);
    return detail::first_few(names, most);
  };
  std::string message = source + ": no column " +
                        (given.empty() ? "with a known name for the " + what : "'" + shown(given) + "' for the " + what) +
                        "; columns of numbers: " + (all.empty() ? "none" : listed(all, 40));
  if (!table.texts.empty()) message += "; of text: " + listed(table.texts, 10);
  const auto near = nearest_name(given, all);
  throw Error(ErrorKind::Data, kHistory, message,
              near.empty() ? "name the columns, as in --columns step=iter,loss=train_loss" : "did you mean '" + shown(near) + "'?");
}

std::string given_or_known(const HistoryTable& table, const std::string& source, const std::string& given, const std::string& known,
                           const char* what) {
  if (given.empty()) return known;
  if (table.find(given) != nullptr) return given;
  const auto found = in_any_case(table, to_lower(given));
  if (found.empty()) no_column(table, source, what, given);
  return found;
}

HistoryColumns find_columns(const HistoryTable& table, const std::string& source, const HistoryColumns& given) {
  auto lr = known_name(table, kLrNames);
  for (const auto& column : table.columns) {
    const auto name = to_lower(column.name);
    if (lr.empty() && (name.starts_with("lr-") || name.starts_with("lr/") || name.starts_with("lr_"))) lr = column.name;
  }
  HistoryColumns out = {.step = given_or_known(table, source, given.step, known_name(table, kStepNames), "step"),
                        .loss = given_or_known(table, source, given.loss, known_name(table, kLossNames), "loss"),
                        .lr = given_or_known(table, source, given.lr, lr, "learning rate")};
  if (out.loss.empty()) no_column(table, source, "loss", "");
  if (out.step.empty() && !table.numbered) no_column(table, source, "step", "");
  return out;
}

// Reads the cells of a column row by row.
class CellsByRow {
 public:
  explicit CellsByRow(const HistoryTable::Column* column) : column_(column) {}
  // Must be called with ascending `row`.
  std::optional<double> at(size_t row) {
    if (column_ == nullptr) return std::nullopt;
    while (next_ < column_->cells.size() && column_->cells[next_].first < row) ++next_;
    return next_ < column_->cells.size() && column_->cells[next_].first == row ? std::optional(column_->cells[next_].second) : std::nullopt;
  }

 private:
  const HistoryTable::Column* column_;
  size_t next_ = 0;
};

class HistoryBuilder {
 public:
  HistoryBuilder(HistoryTable table, const std::string& source, const HistoryColumns& given, HistoryRows rows)
      : table_(std::move(table)), phase_(phase_of(table_, rows)) {
    out_.source = source;
    out_.columns = find_columns(table_, source, given);
    out_.of_epochs = table_.of_epochs || phase_ == "epoch";
    out_.of_end = table_.of_end;
    out_.notes = std::move(table_.notes);
  }

  History build() {
    choose_rows();
    make_epochs_go_on();
    put_in_order();
    fill();
    return std::move(out_);
  }

 private:
  struct Row {
    size_t row;
    int64_t step;
    bool has_loss;
    std::optional<double> epoch;
  };

  void note(size_t n, const std::string& what, const std::string& did) {
    if (n > 0) out_.notes.push_back(detail::counted(static_cast<int64_t>(n), what) + did);
  }

  int64_t whole_step(double value) const {
    const bool whole = std::isfinite(value) && value == std::trunc(value) && std::abs(value) < 1e12;
    check(whole, ErrorKind::Data, kHistory, out_.source, ": column '", shown(out_.columns.step), "': ", value,
          " is not a step number; hint: name the step column, as in --columns step=iter");
    return static_cast<int64_t>(value);
  }

  // Returns the phase whose rows are read; "" if the rows have no phases.
  static std::string phase_of(const HistoryTable& table, HistoryRows rows) {
    const auto has = [&](const char* phase) { return std::find(table.phases.begin(), table.phases.end(), phase) != table.phases.end(); };
    if (rows == HistoryRows::Epochs && has("epoch")) return "epoch";
    for (const char* phase : {"train", "epoch"})
      if (has(phase)) return phase;
    return "";
  }

  // Selects the rows of one phase that have a step.
  void choose_rows() {
    const bool phases = !phase_.empty();
    if (phase_ == "epoch") out_.notes.emplace_back("only the rows of complete epochs are used");
    if (!phases && std::find(table_.phases.begin(), table_.phases.end(), "val") != table_.phases.end())
      out_.notes.emplace_back("no row is from training; the losses are validation losses");
    CellsByRow steps(table_.find(out_.columns.step)), losses(table_.find(out_.columns.loss)), skips(table_.find("skipped")),
        epochs(table_.find("epoch"));
    size_t without_step = 0;
    for (size_t row = 0; row < table_.rows(); ++row) {
      const auto step = out_.columns.step.empty() ? std::optional(static_cast<double>(row)) : steps.at(row);
      const auto loss = losses.at(row), skipped = skips.at(row), epoch = epochs.at(row);
      if (phases && table_.phases[row] != phase_) continue;
      if (!step) {
        without_step += loss.has_value();
      } else if (phase_ == "train" && skipped == 1) {
        out_.skipped.push_back(whole_step(*step));  // the attempt was skipped
      } else {
        rows_.push_back({row, whole_step(*step), loss.has_value(), epoch});
      }
    }
    if (out_.columns.step.empty()) out_.notes.emplace_back("there is no step column; values are numbered from 0");
    note(without_step, "row", " with a loss but no step; omitted");
    note(out_.skipped.size(), "attempt", " skipped (overflow)");
  }

  // If the step numbers restart whenever the epoch increases, and only then, makes them consecutive.
  void make_epochs_go_on() {
    size_t restarts = 0;
    const Row* before = nullptr;
    for (const auto& row : rows_) {
      if (!row.has_loss) continue;
      if (before != nullptr) {
        if (!row.epoch || !before->epoch || (*row.epoch > *before->epoch) != (row.step <= before->step)) return;
        restarts += row.step <= before->step;
      }
      before = &row;
    }
    if (restarts == 0) return;
    int64_t offset = 0;
    before = nullptr;
    for (auto& row : rows_) {
      if (before != nullptr && row.step + offset <= before->step && row.epoch > before->epoch) offset = before->step + 1;
      check(offset < int64_t{1} << 60, ErrorKind::Data, kHistory, out_.source, ": the step numbers of its epochs are too large");
      row.step += offset;
      if (row.has_loss) before = &row;
    }
    note(restarts, "time", " the step number restarts with an epoch; it was continued");
  }

  void put_in_order() {
    bool sorted = true;
    size_t repeated = 0;
    std::map<int64_t, size_t> places;
    int64_t last = std::numeric_limits<int64_t>::min();
    for (const auto& row : rows_) {
      if (!row.has_loss) continue;
      repeated += !places.emplace(row.step, 0).second;
      sorted &= row.step >= last;
      last = row.step;
    }
    check(!places.empty(), ErrorKind::Data, kHistory, out_.source, ": no row has both a step (", shown(out_.columns.step), ") and a loss (",
          shown(out_.columns.loss), ")");
    for (auto& [step, place] : places) {
      place = out_.step.size();
      out_.step.push_back(step);
    }
    place_of_row_.assign(table_.rows(), kNowhere);
    for (const auto& row : rows_)
      if (const auto found = places.find(row.step); found != places.end()) place_of_row_[row.row] = found->second;
    note(repeated, "row", " with a repeated step; the last row of each step is used");
    if (!sorted) out_.notes.emplace_back("rows were not in step order; sorted");
  }

  std::vector<double> values(const HistoryTable::Column& column) const {
    std::vector<double> out(out_.step.size(), kNotLogged);
    for (const auto& [row, value] : column.cells)
      if (place_of_row_[row] != kNowhere) out[place_of_row_[row]] = value;
    return out;
  }

  void fill() {
    size_t left_out = 0, filled = 0;
    for (const auto& column : table_.columns) {
      if (column.name == out_.columns.loss) {
        out_.loss = values(column);
      } else if (column.name == out_.columns.lr) {
        out_.lr = values(column);
      } else if (column.name != out_.columns.step) {
        filled += out_.step.size();
        if (filled > kMostOtherValues)
          ++left_out;
        else
          out_.others.emplace(column.name, values(column));
      }
    }
    note(left_out, "further column", " omitted: too many columns");
  }

  static constexpr size_t kNowhere = static_cast<size_t>(-1);
  HistoryTable table_;
  std::string phase_;
  History out_;
  std::vector<Row> rows_;
  std::vector<size_t> place_of_row_;
};

// Returns the path of the log in a run's folder. If `path` is not a folder, returns `path`.
fs::path log_of(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  for (const char* name : {"metrics.csv", "history.json", "trainer_state.json"})
    if (fs::is_regular_file(path / name, ignored)) return path / name;
  throw Error(ErrorKind::Data, kHistory, path.string() + ": contains no metrics.csv, history.json or trainer_state.json",
              "give the log file itself");
}

}  // namespace

HistoryColumns parse_history_columns(const std::string& text) {
  HistoryColumns out;
  size_t begin = 0;
  while (begin <= text.size() && !text.empty()) {
    const auto end = std::min(text.find(',', begin), text.size());
    const auto part = text.substr(begin, end - begin);
    const auto equals = part.find('=');
    const auto key = part.substr(0, equals);
    auto* to = key == "step" ? &out.step : key == "loss" ? &out.loss : key == "lr" ? &out.lr : nullptr;
    check(to != nullptr && to->empty() && equals != std::string::npos && equals + 1 < part.size(), ErrorKind::Usage, "columns", "'", text,
          "'; allowed: step=iter,loss=train_loss,lr=learning_rate, each at most once");
    *to = part.substr(equals + 1);
    begin = end + 1;
  }
  return out;
}

History read_history(const std::filesystem::path& path, const HistoryColumns& columns, HistoryRows rows) {
  const auto log = log_of(path);
  const auto source = log.string();
  const auto metrics = log.parent_path() / "metrics.csv";
  std::error_code ignored;
  check(log.filename() != "train.log" || !fs::is_regular_file(metrics, ignored), ErrorKind::Data, kHistory, source,
        ": is the text log of a run; hint: its numbers are in ", metrics.string());
  return HistoryBuilder(detail::parse_history(read_file(log, kLargestLog), source), source, columns, rows).build();
}

}  // namespace npu_train
