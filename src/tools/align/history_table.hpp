// The content of a log, before steps and losses are identified.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace npu_train::detail {

// Rows of numbers by column name. Columns are sparse: a row contains only the values that were logged in it.
struct HistoryTable {
  struct Column {
    std::string name;
    std::vector<std::pair<size_t, double>> cells;  // row and value, in ascending order of rows
  };
  std::vector<Column> columns;      // in order of their first appearance
  std::vector<std::string> texts;   // names of columns without numbers
  std::vector<std::string> phases;  // phase of each row: "train", "val" ...; "" if there is none
  std::vector<std::string> notes;
  bool numbered = false;   // the rows may be used as steps if there is no column of steps, as in an object of lists
  bool of_epochs = false;  // each row is a complete epoch
  bool of_end = false;     // the only row is the validation at the run's end

  size_t rows() const { return phases.size(); }
  // Appends a row and makes it current. go_to() selects another row; within a column, rows must ascend.
  void add_row() {
    phases.emplace_back();
    row_ = rows() - 1;
  }
  void go_to(size_t row) { row_ = row; }
  // Sets a cell of the current row. Error(Data) beyond the limit of cells, or for a name of more than 1,000 bytes.
  void set(const std::string& name, double value);
  // Sets a cell from text: a number or a phase; other texts are ignored.
  void set_text(const std::string& name, std::string_view text);
  const Column* find(const std::string& name) const;

 private:
  std::map<std::string, size_t> index_;
  std::map<std::string, bool> seen_texts_;
  size_t cells_ = 0;
  size_t row_ = 0;
};

// Parses a log in any of the formats of read_history().
HistoryTable parse_history(std::string_view text, const std::string& source);

}  // namespace npu_train::detail
