#include "npu_train/tools/report/text_table.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <numeric>

#include "npu_train/core/error.hpp"
#include "npu_train/tools/report/visible_text.hpp"

namespace npu_train {
namespace {

constexpr size_t kNarrowest = 10;  // narrowest column of text
constexpr size_t kBetween = 2;

// Whether the text is a number, with commas and a short unit ("98.2 %", "3.1 GiB").
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

// Returns where a line of `width` ends: at a blank, otherwise after a path separator, otherwise where the line is full.
size_t break_of(const std::string& text, size_t width) {
  const auto full = detail::byte_of_point(text, width);
  if (full >= text.size()) return text.size();
  if (const auto blank = text.rfind(' ', full); blank != std::string::npos && blank > 0) return blank;
  const auto separator = text.find_last_of("/.,:;_-=", full - 1);
  return separator != std::string::npos && separator + 1 >= full / 2 ? separator + 1 : full;
}

std::vector<std::string> lines_of(const std::string& text, size_t width) {
  std::vector<std::string> out;
  size_t at = 0;
  do {
    // Measures only a bounded piece, so that a long cell takes linear time.
    const auto rest = text.substr(at, detail::byte_of_point(text.substr(at, 4 * width + 4), width + 1));
    const auto end = at + break_of(rest, width);
    out.push_back(text.substr(at, end - at));
    out.back().erase(out.back().find_last_not_of(' ') + 1);
    at = std::min(text.find_first_not_of(' ', end), text.size());
  } while (at < text.size());
  return out;
}

// Narrows the widest text columns until the line fits; returns false if none can become narrower.
bool make_fit(std::vector<size_t>& widths, const std::vector<bool>& numeric, size_t width) {
  const size_t total = std::accumulate(widths.begin(), widths.end(), kBetween * (widths.size() - 1));
  for (size_t excess = total > width ? total - width : 0; excess > 0; --excess) {
    size_t widest = widths.size();
    for (size_t i = 0; i < widths.size(); ++i)
      if (!numeric[i] && widths[i] > kNarrowest && (widest == widths.size() || widths[i] > widths[widest])) widest = i;
    if (widest == widths.size()) return false;
    --widths[widest];
  }
  return true;
}

}  // namespace

TextTable::TextTable(std::vector<std::string> columns) : columns_(std::move(columns)) {
  check(!columns_.empty(), ErrorKind::Usage, "TextTable", "there are no columns; at least one is required");
  for (auto& name : columns_) name = detail::visible_text(name);
}

void TextTable::add_row(std::vector<std::string> cells) {
  check(cells.size() == columns_.size(), ErrorKind::Usage, "TextTable", "a row of ", cells.size(), " cells for ", columns_.size(),
        " columns");
  for (auto& cell : cells) cell = detail::visible_text(cell);
  rows_.push_back(std::move(cells));
}

// If the line is too long, the headers of numeric columns are broken first, so that these columns are as narrow as their numbers.
TextTable::Layout TextTable::layout(size_t width) const {
  Layout out;
  std::vector<size_t> narrow;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (!rows_.empty() && std::all_of(rows_.begin(), rows_.end(), [i](const auto& row) { return row[i].empty() || row[i] == "-"; }))
      continue;
    size_t widest = 0;
    for (const auto& row : rows_) widest = std::max(widest, detail::code_points(row[i]));
    const auto head = detail::code_points(columns_[i]);
    out.columns.push_back(i);
    out.numeric.push_back(all_numbers(rows_, i));
    out.widths.push_back(std::max(widest, head));
    narrow.push_back(out.numeric.back() ? std::max(widest, std::min(head, kNarrowest)) : out.widths.back());
  }
  if (width == 0 || out.columns.empty()) return out;
  const auto total = std::accumulate(out.widths.begin(), out.widths.end(), kBetween * (out.widths.size() - 1));
  if (total > width) out.widths = narrow;
  out.fits = make_fit(out.widths, out.numeric, width);
  return out;
}

std::string TextTable::lines(const Layout& layout, const std::vector<std::string>& cells) const {
  std::vector<std::vector<std::string>> pieces;
  size_t count = 1;
  for (size_t k = 0; k < layout.columns.size(); ++k) {
    pieces.push_back(lines_of(cells[layout.columns[k]], layout.widths[k]));
    count = std::max(count, pieces.back().size());
  }
  std::string out;
  for (size_t n = 0; n < count; ++n) {
    std::string line;
    for (size_t k = 0; k < pieces.size(); ++k) {
      const auto text = n < pieces[k].size() ? pieces[k][n] : std::string();
      const auto blanks = std::string(layout.widths[k] - detail::code_points(text), ' ');
      if (k > 0) line.append(kBetween, ' ');
      line += layout.numeric[k] ? blanks + text : text + blanks;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

std::string TextTable::blocks(const Layout& layout, size_t width) const {
  size_t widest = 0;
  for (const auto i : layout.columns) widest = std::max(widest, detail::code_points(columns_[i]));
  widest = std::min(widest, width / 2);
  const auto room = std::max<size_t>(width - std::min(width, widest + kBetween), 1);
  Layout two{{0, 1}, {widest, room}, {false, false}, true};
  std::string out;
  for (const auto& row : rows_) {
    if (!out.empty()) out += '\n';
    for (const auto i : layout.columns)
      if (!row[i].empty()) out += lines(two, {columns_[i], row[i]});
  }
  return out;
}

std::string TextTable::str(size_t width) const {
  const auto shape = layout(width);
  if (!shape.fits && !rows_.empty()) return blocks(shape, width);
  std::vector<std::string> rule(columns_.size());
  for (size_t k = 0; k < shape.columns.size(); ++k) rule[shape.columns[k]] = std::string(shape.widths[k], '-');
  auto out = lines(shape, columns_) + lines(shape, rule);
  for (const auto& row : rows_) out += lines(shape, row);
  return out;
}

}  // namespace npu_train
