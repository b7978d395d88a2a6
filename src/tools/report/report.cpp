#include "npu_train/tools/report/report.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>

#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/report/text_table.hpp"
#include "npu_train/tools/report/visible_text.hpp"
#include "tools/report/digits.hpp"

namespace npu_train {
namespace {

constexpr const char* kReport = "report";
constexpr size_t kTextRows = 20;  // default limit of rows in the text form of a late table (MakeTable)

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

std::string shown_text(const Json& value) {
  switch (value.kind()) {
    case Json::Kind::Null:
      return "-";
    case Json::Kind::Boolean:
      return value.boolean(kReport) ? "yes" : "no";
    case Json::Kind::Integer:
      return with_commas(value.integer(kReport));
    case Json::Kind::Number:
      return short_number(value.number(kReport));
    case Json::Kind::Text:
      return value.text(kReport);
    default:
      break;
  }
  std::vector<std::string> parts;
  if (value.is_array())
    for (const auto& item : value.items(kReport)) parts.push_back(shown_text(item));
  return join(parts);
}

bool is_number(const Json& value) { return value.kind() == Json::Kind::Integer || value.kind() == Json::Kind::Number; }

/// The columns of a table, and for each row a pointer to its value in each column; nullptr if the row has no value there.
struct Grid {
  std::vector<std::string> names;
  std::vector<std::vector<const ReportValue*>> rows;
};

Grid grid_of(const ReportTable& table, ReportIn form) {
  Grid out;
  for (const auto& row : table.rows) {
    auto& cells = out.rows.emplace_back(out.names.size(), nullptr);
    for (const auto& field : row) {
      if (field.name.empty() || (field.in != ReportIn::All && field.in != form)) continue;
      const auto at = static_cast<size_t>(std::find(out.names.begin(), out.names.end(), field.name) - out.names.begin());
      if (at == out.names.size()) out.names.push_back(field.name);
      if (cells.size() <= at) cells.resize(at + 1, nullptr);
      cells[at] = &field.value;
    }
  }
  for (auto& row : out.rows) row.resize(out.names.size(), nullptr);
  return out;
}

std::string table_text(const Grid& grid, size_t rows, size_t width) {
  TextTable out(grid.names);
  for (size_t i = 0; i < rows; ++i) {
    std::vector<std::string> cells;
    for (const auto* value : grid.rows[i]) cells.push_back(value == nullptr ? "" : value->text);
    out.add_row(std::move(cells));
  }
  return out.str(width);
}

size_t widest(const Grid& grid, size_t column) {
  size_t out = 0;
  for (const auto& row : grid.rows)
    if (row[column] != nullptr) out = std::max(out, detail::code_points(row[column]->text));
  return out;
}

std::string padded(const std::string& text, size_t width) {
  return text + std::string(width - std::min(width, detail::code_points(text)), ' ');
}

std::string list_text(const Grid& grid, bool grouped, bool apart, size_t rows, size_t width) {
  const size_t mark = grouped ? 1 : 0, name = mark + 1, text = mark + 2, details = mark + 3;
  const std::string margin(grouped ? 2 : 0, ' ');
  const auto marks = widest(grid, mark);
  const auto lead = marks == 0 ? 0 : marks + 2;
  const auto indent = margin + std::string(std::max<size_t>(lead, 2), ' ');
  size_t labels = 0;
  for (size_t c = details; c < grid.names.size(); ++c) labels = std::max(labels, grid.names[c].size() + 1);
  const auto at = [&](size_t row, size_t column) { return grid.rows[row][column] == nullptr ? "" : grid.rows[row][column]->text; };
  std::string out, group;
  for (size_t i = 0; i < rows; ++i) {
    if (grouped && (i == 0 || at(i, 0) != group)) out += (i == 0 ? "" : "\n") + wrapped(at(i, 0), "", "", 0);
    if (grouped) group = at(i, 0);
    if (apart && i > 0) out += "\n";
    out += wrapped(at(i, name) + (at(i, text).empty() ? "" : ": " + at(i, text)), margin + padded(at(i, mark), lead), indent, width);
    for (size_t c = details; c < grid.names.size(); ++c)
      if (!at(i, c).empty())
        out += wrapped(at(i, c), indent + padded(grid.names[c] + ":", labels + 1), indent + std::string(labels + 1, ' '), width);
  }
  return out;
}

std::string text_of(const ReportTable& table, size_t width, std::optional<size_t> rows) {
  const auto grid = grid_of(table, ReportIn::Text);
  if (grid.names.empty()) return "";
  const auto most = table.text_rows == 0 ? 0 : rows.value_or(table.text_rows);
  const auto shown = most == 0 ? grid.rows.size() : std::min(most, grid.rows.size());
  auto text = (table.title.empty() ? "" : detail::visible_text(table.title) + "\n") +
              (table.layout == ReportTable::Layout::Table
                   ? table_text(grid, shown, width)
                   : list_text(grid, table.layout == ReportTable::Layout::GroupedList, table.apart, shown, width));
  if (const auto all = std::max(table.all, grid.rows.size()); shown < all)
    text += "(" + std::to_string(shown) + " of " + with_commas(static_cast<int64_t>(all)) + " rows" +
            (table.order.empty() ? "" : ", " + table.order) + (rows ? "; --rows 0 shows all)\n" : ")\n");
  return text;
}

// Whether most values of a column are numbers.
bool is_numeric(const Grid& grid, size_t column) {
  int64_t balance = 0;
  for (const auto& row : grid.rows)
    if (row[column] != nullptr && !row[column]->text.empty() && !row[column]->exact.is_null())
      balance += is_number(row[column]->exact) ? 1 : -1;
  return balance > 0;
}

HtmlTable page_table(const ReportTable& table) {
  const auto grid = grid_of(table, ReportIn::Page);
  HtmlTable out{.title = table.title};
  for (size_t c = 0; c < grid.names.size(); ++c) out.columns.push_back({grid.names[c], is_numeric(grid, c)});
  for (const auto& row : grid.rows) {
    auto& cells = out.rows.emplace_back();
    for (const auto* value : row) {
      cells.push_back(value == nullptr ? HtmlTable::Cell{} : HtmlTable::Cell{value->text, {}, value->tone});
      if (value != nullptr && is_number(value->exact)) cells.back().sort = value->exact.number(kReport);
    }
  }
  return out;
}

std::string text_of(const std::vector<ReportField>& facts) {
  size_t names = 0;
  for (const auto& fact : facts) names = std::max(names, detail::code_points(fact.name) + 1);
  std::string out;
  for (const auto& fact : facts)
    if (!fact.name.empty()) out += padded(fact.name + ":", names + 1) + detail::visible_text(fact.value.text) + "\n";
  return out;
}

// Capitalises a sentence: "fits: needs 3 GiB" -> "Fits: needs 3 GiB". A name such as resnet50 is kept.
std::string capitalised(std::string text) {
  const auto word = text.substr(0, text.find_first_of(" :,;"));
  const bool plain = std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
  if (plain && !text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

std::string page_sentence(const std::string& text) {
  const bool ended = !text.empty() && std::string_view(".!?:").find(text.back()) != std::string_view::npos;
  return text + (ended ? "" : ".");
}

}  // namespace

ReportValue::ReportValue(Json value) : exact(std::move(value)), text(shown_text(exact)) {}

ReportValue number_value(double value, int digits) { return {value, short_number(value, digits)}; }
ReportValue bytes_value(ReportValue bytes) {
  bytes.text = human_bytes(bytes.exact.number(kReport));
  return bytes;
}
ReportValue unless_nan(ReportValue value) { return std::isnan(value.exact.number(kReport)) ? ReportValue(Json()) : value; }
ReportValue share_value(double share, int digits) { return {share, percentage(share, digits)}; }
ReportValue toned(ReportValue value, Tone tone) {
  value.tone = tone;
  return value;
}

Json ReportTable::json() const {
  auto out = Json::array();
  for (const auto& row : rows) {
    auto object = Json::object();
    for (const auto& field : row)
      if (!field.key.empty()) object.push_member(field.key, field.value.exact);
    if (!object.members(kReport).empty()) out.push_back(std::move(object));
  }
  return out;
}

void Report::data(std::vector<std::pair<std::string, Json>> members) {
  for (auto& [key, value] : members) json_.set(key, std::move(value));
}

Json Report::json() const {
  auto out = json_;
  for (const auto& [key, make] : late_) out.push_member(key, make());
  return out;
}

void Report::add(const std::string& key, Report part) {
  json_.set(key, part.json());
  std::move(part.blocks_.begin(), part.blocks_.end(), std::back_inserter(blocks_));
}

void Report::verdict(std::string text, Tone tone, ReportIn in) { blocks_.push_back({in, Sentence{"", std::move(text), tone, true}}); }
void Report::say(std::string text, Tone tone, ReportIn in) { blocks_.push_back({in, Sentence{"", std::move(text), tone, false}}); }
void Report::heading(std::string text, ReportIn in) { blocks_.push_back({in, Heading{std::move(text)}}); }

void Report::remarks(const std::string& label, const std::vector<std::string>& texts, Tone tone, ReportIn in) {
  for (const auto& text : texts) blocks_.push_back({in, Sentence{label, text, tone, false}});
}

void Report::notes(const std::vector<std::string>& notes, Tone tone) {
  json_.push_member("notes", detail::json_list(notes));
  remarks("note", notes, tone);
}

void Report::facts(std::vector<ReportField> facts, ReportIn in) {
  for (const auto& fact : facts)
    if (!fact.key.empty()) json_.push_member(fact.key, fact.value.exact);
  blocks_.push_back({in, std::move(facts)});
}

void Report::table(const std::string& key, ReportTable table, ReportIn in) {
  if (!key.empty()) json_.push_member(key, table.json());
  blocks_.push_back({in, std::move(table)});
}

void Report::late_table(MakeTable make, ReportIn in) { blocks_.push_back({in, std::move(make)}); }

void Report::late_text(MakeText make) { blocks_.push_back({ReportIn::Text, std::move(make)}); }

void Report::plot(std::variant<LinePlot, BarPlot, Histogram> plot) {
  std::visit([&](auto& drawn) { blocks_.push_back({ReportIn::Page, std::move(drawn)}); }, plot);
}

std::string Report::text(size_t width, std::optional<size_t> rows) const {
  std::string out;
  bool in_lines = false;
  if (width == 0) width = width_;
  for (const auto& block : blocks_) {
    if (block.in == ReportIn::Page) continue;
    const auto* sentence = std::get_if<Sentence>(&block.content);
    const auto piece = std::visit(
        Overloaded{[](const Sentence& s) { return detail::visible_lines(s.line()) + "\n"; },
                   [](const Heading& h) { return detail::visible_text(h.text) + "\n"; }, [](const Facts& facts) { return text_of(facts); },
                   [&](const ReportTable& table) { return text_of(table, width, rows); },
                   [&](const MakeTable& make) { return text_of(make(rows.value_or(kTextRows)), width, rows); },
                   [&](const MakeText& make) { return make(rows.value_or(kTextRows), width); },
                   [](const auto& /*drawn*/) { return std::string(); }},
        block.content);
    if (piece.empty()) continue;
    const bool line = sentence != nullptr && !sentence->alone;
    if (!out.empty() && !(line && in_lines)) out += "\n";
    out += piece;
    in_lines = line || std::holds_alternative<Heading>(block.content);
  }
  return out;
}

std::string Report::html() const {
  HtmlPage page(title_);
  const auto add_table = [&](const ReportTable& table) {
    if (!table.rows.empty()) page.table(page_table(table));
  };
  for (const auto& block : blocks_) {
    if (block.in == ReportIn::Text) continue;
    std::visit(Overloaded{[&](const Sentence& s) {
                            page.paragraph(page_sentence(s.label.empty() && !s.alone ? s.text : capitalised(s.line())), s.tone);
                          },
                          [&](const Heading& h) { page.heading(h.text); },
                          [&](const Facts& facts) {
                            std::vector<HtmlPage::Fact> list;
                            for (const auto& fact : facts)
                              if (!fact.name.empty()) list.push_back({fact.name, fact.value.text, fact.value.tone});
                            page.facts(list);
                          },
                          add_table, [&](const MakeTable& make) { add_table(make(0)); }, [](const MakeText& /*text*/) {},
                          [&](const LinePlot& plot) { page.plot(plot); }, [&](const BarPlot& plot) { page.bars(plot); },
                          [&](const Histogram& plot) { page.histogram(plot); }, [&](const HtmlGallery& gallery) { page.gallery(gallery); }},
               block.content);
  }
  return page.str();
}

std::string short_number(double value, int digits) {
  if (!std::isfinite(value)) return shortest(value);
  const double size = std::abs(value);
  if (size < 1e15 && value == std::trunc(value)) return with_commas(static_cast<int64_t>(value));
  if (size < 1e-3 || size >= 1e6) return detail::scientific(value, digits);
  const int before = static_cast<int>(std::floor(std::log10(size))) + 1;
  return detail::fixed(value, std::max(0, digits - before));
}

}  // namespace npu_train
