#include "npu_train/core/facts_table.hpp"

#include "npu_train/core/error.hpp"

namespace npu_train::detail {

std::vector<std::vector<std::string_view>> facts_rows(std::string_view table, const char* name, size_t columns) {
  std::vector<std::vector<std::string_view>> out;
  bool header = false;
  for (const auto line : split_view(table, '\n')) {
    if (line.empty() || line.front() == '#') continue;
    auto cells = split_view(line, '\t');
    check(cells.size() == columns, ErrorKind::Internal, name, "a row of ", cells.size(), " cells for ", columns,
          " columns: ", std::string(line));
    if (header) out.push_back(std::move(cells));
    header = true;
  }
  check(header, ErrorKind::Internal, name, "no row names the columns");
  return out;
}

std::vector<std::vector<std::string>> facts_texts(std::string_view table, const char* name, size_t columns) {
  std::vector<std::vector<std::string>> out;
  for (const auto& row : facts_rows(table, name, columns)) {
    auto& texts = out.emplace_back();
    for (const auto cell : row) texts.emplace_back(cell == "-" ? "" : cell);
  }
  return out;
}

std::string facts_note(std::string_view table, std::string_view key) {
  const auto start = "# " + std::string(key) + ": ";
  for (const auto line : split_view(table, '\n'))
    if (line.starts_with(start)) return std::string(line.substr(start.size()));
  return "";
}

}  // namespace npu_train::detail
