#include "npu_train/io/csv.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train {
namespace {

bool needs_quotes(const std::string& cell, bool alone) {
  if (cell.empty()) return alone;  // an empty line is not a row
  return cell.find_first_of(",\"\r\n") != std::string::npos || cell.front() == ' ' || cell.back() == ' ' ||
         cell.starts_with(kByteOrderMark);
}

class CsvParser {
 public:
  CsvParser(std::string_view text, const std::string& source, const CsvLimits& limits, char separator)
      : text_(text), limits_(limits), separator_(separator), ends_({separator, '\r', '\n'}) {
    table_.source = source;
  }

  CsvTable parse() {
    const auto nul = text_.find('\0');
    require(nul == std::string_view::npos, "contains a NUL byte", "it is not text, or text in UTF-16; save it as UTF-8");
    at_ = start_of_text(text_);
    while (at_ < text_.size()) {
      if (skip_line_end()) continue;
      const auto begin = line_;
      auto cells = row();
      if (table_.columns.empty()) {
        table_.columns = std::move(cells);
        continue;
      }
      const auto wanted = table_.columns.size();
      if (cells.size() != wanted) {
        fail(begin, std::to_string(cells.size()) + " cells, but the header has " + std::to_string(wanted),
             "a cell with a comma must be quoted; the last line may be truncated");
      }
      table_.rows.push_back(std::move(cells));
      table_.lines.push_back(begin);
    }
    require(!table_.columns.empty(), "is empty", "a header with the names of the columns is required");
    return std::move(table_);
  }

 private:
  [[noreturn]] void fail(size_t line, const std::string& what, const std::string& hint) const {
    throw Error(ErrorKind::Data, "csv", table_.source + ":" + std::to_string(line) + ": " + what, hint);
  }
  void require(bool ok, const std::string& what, const std::string& hint) const {
    if (!ok) throw Error(ErrorKind::Data, "csv", table_.source + ": " + what, hint);
  }

  bool skip_line_end() {
    if (at_ >= text_.size() || (text_[at_] != '\n' && text_[at_] != '\r')) return false;
    at_ += text_.substr(at_).starts_with("\r\n") ? 2 : 1;
    ++line_;
    return true;
  }

  std::vector<std::string> row() {
    std::vector<std::string> cells;
    for (;;) {
      if (++count_ > limits_.cells) {
        fail(line_, "more than " + with_commas(static_cast<int64_t>(limits_.cells)) + " cells", "keep fewer columns or every n-th row");
      }
      cells.push_back(at_ < text_.size() && text_[at_] == '"' ? quoted() : plain());
      if (at_ >= text_.size() || skip_line_end()) return cells;
      ++at_;  // the separator
    }
  }

  std::string plain() {
    const auto end = std::min(text_.find_first_of(ends_, at_), text_.size());
    const auto cell = text_.substr(at_, end - at_);
    at_ = end;
    return std::string(cell);
  }

  std::string quoted() {
    const auto begin = line_;
    std::string cell;
    for (++at_;;) {
      const auto quote = text_.find('"', at_);
      if (quote == std::string_view::npos) fail(begin, "an unterminated quote", "the file is truncated or damaged");
      const auto part = text_.substr(at_, quote - at_);
      count_lines(part);
      cell += part;
      at_ = quote + 1;
      if (at_ >= text_.size() || text_[at_] != '"') break;
      cell += '"';
      ++at_;
    }
    if (at_ < text_.size() && text_[at_] != separator_ && text_[at_] != '\n' && text_[at_] != '\r')
      fail(line_, "text after a closing quote", "a quote inside a quoted cell is written twice");
    return cell;
  }

  void count_lines(std::string_view part) {
    for (size_t i = 0; i < part.size(); ++i)
      if (part[i] == '\n' || (part[i] == '\r' && !(i + 1 < part.size() && part[i + 1] == '\n'))) ++line_;
  }

  std::string_view text_;
  const CsvLimits& limits_;
  char separator_;
  std::string ends_;  // characters at which a plain cell ends
  CsvTable table_;
  size_t at_ = 0;
  size_t line_ = 1;
  size_t count_ = 0;
};

// Reads a number as logs write it; ignores blanks around it.
bool read_number(std::string_view cell, double& out) {
  const auto first = cell.find_first_not_of(" \t");
  if (first == std::string_view::npos) {
    out = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  cell = cell.substr(first, cell.find_last_not_of(" \t") + 1 - first);
  if (cell.starts_with('+') && !cell.starts_with("+-")) cell.remove_prefix(1);
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), out);
  if (end != cell.data() + cell.size() || error == std::errc::invalid_argument) return false;
  if (error == std::errc::result_out_of_range) {
    // Returns the rounded value of a number beyond the range of a double, because from_chars does not provide it.
    const auto exponent = cell.find_first_of("eE");
    const bool tiny =
        exponent != std::string_view::npos ? cell.substr(exponent + 1).starts_with('-') : cell.find_first_of("123456789") > cell.find('.');
    const double size = tiny ? 0 : std::numeric_limits<double>::infinity();
    out = cell.starts_with('-') ? -size : size;
  }
  return true;
}

// Returns whether a spreadsheet would compute the cell.
bool begins_formula(std::string_view cell) {
  double number = 0;
  return !cell.empty() && std::string_view("=+-@").find(cell[0]) != std::string_view::npos && !read_number(cell, number);
}

std::string harmless(const std::string& cell) { return (begins_formula(cell) ? "'" : "") + detail::visible_text(cell); }

}  // namespace

std::string csv_row(const std::vector<std::string>& cells) {
  std::string out;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) out += ',';
    const auto cell = harmless(cells[i]);
    if (!needs_quotes(cell, cells.size() == 1)) {
      out += cell;
      continue;
    }
    out += '"';
    for (const char c : cell) out.append(c == '"' ? 2 : 1, c);
    out += '"';
  }
  return out + '\n';
}

bool CsvTable::has(std::string_view column) const { return std::find(columns.begin(), columns.end(), column) != columns.end(); }

size_t CsvTable::index(std::string_view column) const {
  const auto found = std::find(columns.begin(), columns.end(), column);
  if (found == columns.end()) {
    std::vector<std::string> known;
    for (size_t i = 0; i < std::min<size_t>(columns.size(), 40); ++i)
      known.push_back(detail::shorten_middle(detail::visible_text(columns[i]), 60));
    if (known.size() < columns.size()) known.emplace_back("...");
    const auto near = nearest_name(column, columns);
    throw Error(ErrorKind::Data, "csv", source + ": no column '" + std::string(column) + "'; it has: " + join(known),
                near.empty() ? "columns are separated by commas" : "did you mean '" + detail::visible_text(near) + "'?");
  }
  check(std::find(found + 1, columns.end(), column) == columns.end(), ErrorKind::Data, "csv", source, ": more than one column '", column,
        "'");
  return static_cast<size_t>(found - columns.begin());
}

std::vector<double> CsvTable::numbers(std::string_view column) const {
  const auto i = index(column);
  std::vector<double> out(rows.size());
  for (size_t row = 0; row < rows.size(); ++row) {
    if (read_number(rows[row][i], out[row])) continue;
    const auto cell = detail::shorten_middle(detail::visible_text(rows[row][i]), 60);
    throw Error(ErrorKind::Data, "csv",
                source + ":" + std::to_string(lines[row]) + ": column '" + std::string(column) + "': '" + cell + "' is not a number");
  }
  return out;
}

CsvTable parse_csv(std::string_view text, const std::string& source, const CsvLimits& limits, char separator) {
  check(text.size() <= limits.bytes, ErrorKind::Data, "csv", source, ": ", text.size(), " bytes; allowed: at most ", limits.bytes);
  return CsvParser(text, source, limits, separator).parse();
}

CsvTable read_csv(const std::filesystem::path& path, const CsvLimits& limits) {
  return parse_csv(read_file(path, limits.bytes), path.string(), limits);
}

}  // namespace npu_train
