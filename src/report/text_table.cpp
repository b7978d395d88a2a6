#include "npu_train/report/text_table.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <numeric>
#include <sstream>

#include "npu_train/core/error.hpp"
#include "npu_train/report/visible_text.hpp"

namespace npu_train {
namespace {

constexpr size_t kNarrowest = 8;
constexpr size_t kBetween = 2;

// A number, with commas and with a short unit ("98.2 %", "3.1 GiB").
bool shows_number(std::string text) {
  std::erase(text, ',');
  size_t at = text.starts_with('+') || text.starts_with('-') ? 1 : 0;
  double ignored = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), ignored);
  if (error == std::errc::invalid_argument || text.substr(at).starts_with('-')) return false;
  at = static_cast<size_t>(end - text.data());
  if (at < text.size() && text[at] == ' ') ++at;
  const auto unit = text.substr(at);
  return unit.size() <= 5 && std::all_of(unit.begin(), unit.end(), [](unsigned char c) { return std::isalpha(c) || c == '%' || c == '/'; });
}

bool all_numbers(const std::vector<std::vector<std::string>>& rows, size_t column) {
  bool any = false;
  for (const auto& row : rows) {
    if (row[column].empty() || row[column] == "-") continue;
    if (!shows_number(row[column])) return false;
    any = true;
  }
  return any;
}

// Takes from the widest columns of text until the line fits or none can give more.
void make_fit(std::vector<size_t>& widths, const std::vector<bool>& numeric, size_t width) {
  const size_t total = std::accumulate(widths.begin(), widths.end(), kBetween * (widths.size() - 1));
  for (size_t excess = total > width ? total - width : 0; excess > 0; --excess) {
    size_t widest = widths.size();
    for (size_t i = 0; i < widths.size(); ++i)
      if (!numeric[i] && widths[i] > kNarrowest && (widest == widths.size() || widths[i] > widths[widest])) widest = i;
    if (widest == widths.size()) return;
    --widths[widest];
  }
}

// Broken at blanks into lines of at most `width`, but for words that are longer.
std::vector<std::string> lines_of(const std::string& text, size_t width) {
  if (detail::code_points(text) <= width) return {text};
  std::vector<std::string> out(1);
  size_t used = 0;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto length = detail::code_points(word);
    if (used > 0 && used + 1 + length > width) out.emplace_back(), used = 0;
    out.back() += (used > 0 ? " " : "") + word;
    used += (used > 0 ? 1 : 0) + length;
  }
  return out;
}

}  // namespace

TextTable::TextTable(std::vector<std::string> columns) : columns_(std::move(columns)) {
  check(!columns_.empty(), ErrorKind::Usage, "TextTable", "no columns; at least one is needed");
  for (auto& name : columns_) name = detail::visible_text(name);
}

void TextTable::add_row(std::vector<std::string> cells) {
  check(cells.size() == columns_.size(), ErrorKind::Usage, "TextTable", "a row of ", cells.size(), " cells for ", columns_.size(),
        " columns");
  for (auto& cell : cells) cell = detail::visible_text(cell);
  rows_.push_back(std::move(cells));
}

TextTable::Layout TextTable::layout(size_t width) const {
  Layout out;
  auto& [widths, numeric] = out;
  for (size_t i = 0; i < columns_.size(); ++i) {
    widths.push_back(detail::code_points(columns_[i]));
    for (const auto& row : rows_) widths[i] = std::max(widths[i], detail::code_points(row[i]));
    numeric.push_back(all_numbers(rows_, i));
  }
  if (width > 0) make_fit(widths, numeric, width);
  return out;
}

std::string TextTable::line(const Layout& layout, const std::vector<std::string>& cells) const {
  std::string out;
  for (size_t i = 0; i < cells.size(); ++i) {
    const auto width = layout.widths[i];
    const auto cell = detail::shorten_middle(cells[i], std::max<size_t>(width, 4));
    const auto blanks = std::string(width - std::min(width, detail::code_points(cell)), ' ');
    if (i > 0) out.append(kBetween, ' ');
    out += layout.numeric[i] ? blanks + cell : cell + blanks;
  }
  out.erase(out.find_last_not_of(' ') + 1);
  return out + '\n';
}

std::string TextTable::head(const Layout& layout) const {
  std::vector<std::string> rule;
  for (const auto w : layout.widths) rule.emplace_back(w, '-');
  return line(layout, columns_) + line(layout, rule);
}

std::string TextTable::str(size_t width) const {
  const auto columns = layout(width);
  auto out = head(columns);
  for (const auto& row : rows_) out += line(columns, row);
  return out;
}

std::string TextTable::wrapped(size_t width) const {
  const auto columns = layout(width);
  auto out = head(columns);
  for (const auto& row : rows_) {
    std::vector<std::vector<std::string>> cells;
    size_t lines = 1;
    for (size_t i = 0; i < row.size(); ++i) {
      cells.push_back(lines_of(row[i], columns.widths[i]));
      lines = std::max(lines, cells.back().size());
    }
    for (size_t k = 0; k < lines; ++k) {
      std::vector<std::string> of_line;
      for (const auto& cell : cells) of_line.push_back(k < cell.size() ? cell[k] : "");
      out += line(columns, of_line);
    }
  }
  return out;
}

}  // namespace npu_train
