#include "tools/report/html_table.hpp"

#include <algorithm>
#include <charconv>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/report/report.hpp"
#include "npu_train/tools/report/visible_text.hpp"

namespace npu_train {
namespace {

constexpr size_t kFirstRows = 200;  // must equal the number in the script
constexpr size_t kWorthAFilter = 8;
constexpr size_t kShownComplete = 100;  // limit of rows for a table without a scrollbar of its own
constexpr size_t kShortText = 14;       // a text up to this length stays on one line
constexpr size_t kLongText = 40;        // a text longer than this gets a wide column

// Returns the sort key of a cell; "" for none.
std::string sort_key(const HtmlTable::Cell& cell, bool numeric) {
  if (cell.sort) return shortest(*cell.sort);
  if (!numeric) return "";
  auto digits = cell.text;
  std::erase(digits, ',');
  double value = 0;
  const auto error = std::from_chars(digits.data(), digits.data() + digits.size(), value).ec;
  return error == std::errc() ? shortest(value) : "";
}

std::string cell_html(const HtmlTable::Cell& cell, bool numeric) {
  const auto key = sort_key(cell, numeric);
  const auto text = detail::escape_html(cell.text);
  const auto length = detail::code_points(cell.text);
  const char* kind = numeric && length <= kLongText ? " class=\"n\""
                     : length > kLongText           ? " class=\"long\""
                     : length > kShortText          ? " class=\"text\""
                                                    : "";
  return std::string("<td") + kind + (key.empty() ? "" : " data-v=\"" + key + "\"") + ">" +
         (cell.tone == Tone::Plain ? text : "<span class=\"" + detail::tone_class(cell.tone) + "\">" + text + "</span>") + "</td>";
}

// Returns the columns with at least one cell that is not empty or "-".
std::vector<size_t> filled_columns(const HtmlTable& table) {
  std::vector<size_t> out;
  for (size_t column = 0; column < table.columns.size(); ++column)
    if (std::any_of(table.rows.begin(), table.rows.end(),
                    [column](const auto& row) { return !row[column].text.empty() && row[column].text != "-"; }))
      out.push_back(column);
  return out;
}

}  // namespace

HtmlTable::Cell HtmlTable::Cell::number(double value, Tone tone, int digits) { return {short_number(value, digits), value, tone}; }

namespace detail {

std::string tone_class(Tone tone) {
  switch (tone) {
    case Tone::Plain:
      return "";
    case Tone::Good:
      return "good";
    case Tone::Warn:
      return "warn";
    case Tone::Bad:
      return "bad";
  }
  return "";
}

std::string table_html(const HtmlTable& table) {
  const auto rows = table.rows.size();
  for (size_t i = 0; i < rows; ++i) {
    check(table.rows[i].size() == table.columns.size(), ErrorKind::Usage, "HtmlTable", "row ", i, " has ", table.rows[i].size(),
          " cells for ", table.columns.size(), " columns");
  }
  const auto title = escape_html(table.title.empty() ? "table" : table.title);
  std::string out = "<section class=\"table\">\n";
  if (!table.title.empty()) out += "<h3>" + title + "</h3>\n";
  if (rows == 0) return out + "<p class=\"nothing\">no rows</p>\n</section>\n";
  if (rows > kWorthAFilter) {
    out += "<div class=\"tools\"><input type=\"search\" placeholder=\"Filter rows\" aria-label=\"Filter the rows of " + title +
           "\" autocomplete=\"off\" spellcheck=\"false\"><span class=\"count\" role=\"status\"></span></div>\n";
  }
  out += "<div class=\"scroll" + std::string(rows <= kShownComplete ? " complete" : "") +
         "\" tabindex=\"0\" role=\"region\" aria-label=\"" + title + "\">\n<table" + (rows > kFirstRows ? " class=\"limited\"" : "") +
         ">\n<thead><tr>";
  const auto columns = filled_columns(table);
  for (const auto column : columns)
    out += std::string("<th scope=\"col\"") + (table.columns[column].numeric ? " class=\"n\"" : "") + "><button type=\"button\">" +
           escape_html(table.columns[column].name) + "</button></th>";
  out += "</tr></thead>\n<tbody>\n";
  for (size_t i = 0; i < rows; ++i) {
    if (i == kFirstRows) out += "</tbody>\n<tbody class=\"rest\">\n";  // hidden, and thus not laid out, until it is requested
    out += "<tr>";
    for (const auto column : columns) out += cell_html(table.rows[i][column], table.columns[column].numeric);
    out += "</tr>\n";
  }
  out += "</tbody>\n</table>\n</div>\n";
  if (rows > kFirstRows)
    out += "<button type=\"button\" class=\"all\">Show all " + with_commas(static_cast<int64_t>(rows)) + " rows</button>\n";
  return out + "</section>\n";
}

}  // namespace detail
}  // namespace npu_train
