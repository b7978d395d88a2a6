#include "doctor/facts_table.hpp"

#include "doctor/parse.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train::detail {

std::vector<std::vector<std::string>> facts_rows(std::string_view table, const char* name) {
  std::vector<std::vector<std::string>> out;
  size_t columns = 0;
  for (const auto& line : split(table, '\n')) {
    if (line.empty() || line.front() == '#') continue;
    auto cells = split(line, '\t');
    check(columns == 0 || cells.size() == columns, ErrorKind::Internal, name, "a row of ", cells.size(), " cells for ", columns,
          " columns: ", line);
    for (auto& cell : cells)
      if (cell == "-") cell.clear();
    if (columns > 0) out.push_back(std::move(cells));
    columns = columns == 0 ? cells.size() : columns;
  }
  return out;
}

std::string facts_note(std::string_view table, std::string_view key) {
  for (const auto& line : split(table, '\n'))
    if (line.starts_with("# " + std::string(key) + ": ")) return line.substr(key.size() + 4);
  return "";
}

}  // namespace npu_train::detail
