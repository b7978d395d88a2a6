// A log as it was read, before steps and losses are found in it.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace npu_train::detail {

// Rows of numbers by name. Columns are sparse: a row of a log has what was measured then.
struct HistoryTable {
  struct Column {
    std::string name;
    std::vector<std::pair<size_t, double>> cells;  // by row, rising
  };
  std::vector<Column> columns;      // in the order in which they were seen
  std::vector<std::string> texts;   // names of columns that hold no number
  std::vector<std::string> phases;  // of each row: "train", "val" ...; "" if it has none
  std::vector<std::string> notes;
  bool numbered = false;   // rows have positions and no column of steps: lists of an object
  bool of_epochs = false;  // rows are complete epochs
  bool of_end = false;     // the one row is the validation at the run's end

  size_t rows() const { return phases.size(); }
  // The last row is the one that is filled, until go_to names another: within a column rows must rise.
  void add_row() {
    phases.emplace_back();
    row_ = rows() - 1;
  }
  void go_to(size_t row) { row_ = row; }
  // A cell of this row. Error(Data) beyond the limit of cells, or for a name of more than 1,000 bytes.
  void set(const std::string& name, double value);
  // Text of this row: a number, a phase, or something that is not looked at.
  void set_text(const std::string& name, std::string_view text);
  const Column* find(const std::string& name) const;

 private:
  std::map<std::string, size_t> index_;
  std::map<std::string, bool> seen_texts_;
  size_t cells_ = 0;
  size_t row_ = 0;
};

// Reads the text of any of the formats.
HistoryTable parse_history(std::string_view text, const std::string& source);

}  // namespace npu_train::detail
