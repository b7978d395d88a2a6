/// Results for people and programs: one value, shown as text, as a page and as JSON.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "npu_train/io/json.hpp"
#include "npu_train/tools/report/html_page.hpp"

namespace npu_train {

/// A value, which is exact in JSON and for sorting, and rounded for people.
struct ReportValue {
  Json exact{};
  std::string text{};
  Tone tone = Tone::Plain;

  ReportValue(Json value, std::string shown, Tone judged = Tone::Plain) : exact(std::move(value)), text(std::move(shown)), tone(judged) {}
  /// Shows text as it is, integers with commas, other numbers with four digits, lists joined, and null as "-".
  ReportValue(Json value);
  template <class T>
  requires(std::convertible_to<T, Json> && !std::same_as<std::remove_cvref_t<T>, Json>) ReportValue(T&& value)
      : ReportValue(Json(std::forward<T>(value))) {}
  template <std::integral T>
  requires(!std::convertible_to<T, Json>) ReportValue(T value) : ReportValue(Json(static_cast<int64_t>(value))) {}
};

ReportValue number_value(double value, int digits);
/// Shows bytes as "3.1 GiB".
ReportValue bytes_value(ReportValue bytes);
/// Shows 0.123 as "12.3 %".
ReportValue share_value(double share, int digits = 3);
/// Returns null, shown as "-", for NaN, and otherwise the same value.
ReportValue unless_nan(ReportValue value);
/// Shows the same value in the colour of a judgement.
ReportValue toned(ReportValue value, Tone tone);

/// Where people see an item of a report: in the text, on the page, or both.
enum class ReportIn { All, Text, Page };

/// A value with its key in JSON and its name for people. A key of "" leaves it out of JSON, a name of "" leaves it out of the other forms.
struct ReportField {
  std::string key, name;
  ReportValue value;
  ReportIn in = ReportIn::All;
};

inline ReportField both(std::string key, ReportValue value) { return {key, key, std::move(value)}; }
inline ReportField both(std::string key, std::string name, ReportValue value) {
  return {std::move(key), std::move(name), std::move(value)};
}
inline ReportField data(std::string key, Json value) { return {std::move(key), "", ReportValue(std::move(value), "")}; }
inline ReportField shown(std::string name, ReportValue value) { return {"", std::move(name), std::move(value)}; }

inline ReportField in_text(ReportField field) { return {field.key, field.name, std::move(field.value), ReportIn::Text}; }
inline ReportField on_page(ReportField field) { return {field.key, field.name, std::move(field.value), ReportIn::Page}; }

/// Rows of fields. A column consists of the fields with the same name.
struct ReportTable {
  /// The layout of the text form; a page always has a table. In a list, a row has a mark, a name, a text and named details, as in
  ///
  ///     WARN  threads: 64 threads on 4 cores
  ///           fix: export OMP_NUM_THREADS=4
  ///
  /// A GroupedList shows the first field as a heading above the rows that have the same value in it.
  enum class Layout { Table, List, GroupedList };

  std::string title{};
  Layout layout = Layout::Table;
  bool apart = false;  ///< a list has a blank line between its rows
  std::vector<std::vector<ReportField>> rows{};
  size_t text_rows = 0;  ///< maximum number of rows in the text; 0: all
  size_t all = 0;        ///< total number of rows, if some of them are not in `rows`
  std::string order{};   ///< order of the rows, such as "worst first", which the text names if rows are left out

  void add(std::vector<ReportField> row) { rows.push_back(std::move(row)); }
  /// Returns an array with an object for each row that has keys.
  Json json() const;
};

/// Makes a table with at most `most` rows (0: all) when it is needed. ReportTable::all is the number of all rows.
using MakeTable = std::function<ReportTable(size_t most)>;
/// Makes lines of text with a layout of their own, for at most `most` rows (0: all) and `width` columns (0: any).
using MakeText = std::function<std::string(size_t most, size_t width)>;

/// A report, which grows from top to bottom. Sentences have no full stop; the page adds it.
class Report {
 public:
  /// `title`: heading of the page. `document`: the first keys of the JSON document.
  explicit Report(std::string title, Json document = Json::object()) : title_(std::move(title)), json_(std::move(document)) {}

  /// Sets the width that tables are fitted to if text() is called without one. It is for tables whose rows have dozens of numbers.
  void fit_to(size_t width) { width_ = width; }
  /// Adds keys to the JSON document only.
  void data(std::vector<std::pair<std::string, Json>> members);
  /// Adds the content of another report, with its document under `key`.
  void add(const std::string& key, Report part);
  /// Adds a sentence that is a paragraph of its own.
  void verdict(std::string text, Tone tone = Tone::Plain, ReportIn in = ReportIn::All);
  /// Adds a sentence. Consecutive sentences are lines of one paragraph in the text.
  void say(std::string text, Tone tone = Tone::Plain, ReportIn in = ReportIn::All);
  /// Adds sentences after a label: "note: ...".
  void remarks(const std::string& label, const std::vector<std::string>& texts, Tone tone = Tone::Plain, ReportIn in = ReportIn::All);
  /// Adds remarks with the label "note", and the key "notes" in JSON.
  void notes(const std::vector<std::string>& notes, Tone tone = Tone::Plain);
  void facts(std::vector<ReportField> facts, ReportIn in = ReportIn::All);
  void heading(std::string text, ReportIn in = ReportIn::Page);
  /// Adds a table. `key`: the key of the rows in JSON; "": not in JSON.
  void table(const std::string& key, ReportTable table, ReportIn in = ReportIn::All);
  /// Adds a table, a text, or the value of `key`, which `make` creates only for a form that shows it. Use this for results with many rows.
  /// Objects that `make` refers to must outlive the report.
  void late_table(MakeTable make, ReportIn in);
  void late_text(MakeText make);
  void late_data(std::string key, std::function<Json()> make) { late_.emplace_back(std::move(key), std::move(make)); }
  /// Plots and galleries are only on the page.
  void plot(std::variant<LinePlot, BarPlot, Histogram> plot);
  void gallery(HtmlGallery gallery) { blocks_.push_back({ReportIn::Page, std::move(gallery)}); }

  /// Returns all lines. Tables are fitted to `width` columns; if it is 0, to the width of fit_to(), if any. `rows` replaces the limit of
  /// tables that have `text_rows`; 0: all rows.
  std::string text(size_t width = 0, std::optional<size_t> rows = {}) const;
  std::string html() const;
  Json json() const;

 private:
  struct Sentence {
    std::string label, text;
    Tone tone;
    bool alone;
    std::string line() const { return label.empty() ? text : label + ": " + text; }
  };
  struct Heading {
    std::string text;
  };
  using Facts = std::vector<ReportField>;
  struct Block {
    ReportIn in;
    std::variant<Sentence, Heading, Facts, ReportTable, MakeTable, MakeText, LinePlot, BarPlot, Histogram, HtmlGallery> content;
  };

  std::string title_;
  size_t width_ = 0;
  Json json_;
  std::vector<Block> blocks_;
  std::vector<std::pair<std::string, std::function<Json()>>> late_;
};

/// The three forms of a result for which there is a report_of().
template <class Result>
requires requires(const Result& result) { report_of(result); }
std::string to_text(const Result& result, size_t width = 0) { return report_of(result).text(width); }
template <class Result>
requires requires(const Result& result) { report_of(result); }
Json to_json(const Result& result) { return report_of(result).json(); }
template <class Result>
requires requires(const Result& result) { report_of(result); }
std::string to_html(const Result& result) { return report_of(result).html(); }

// Numbers for people: few digits, no noise.

/// Returns `value` with at most `digits` significant digits: "0.1235", "12.3", "1.2e-5". Integers below 1e15 keep all their digits:
/// "1,234,567". Up to a million, all digits before the decimal point are kept: "123,457", not "1.235e5". Also "nan", "inf" and "-inf".
std::string short_number(double value, int digits = 4);

/// Returns a share as "12.3 %".
inline std::string percentage(double share, int digits = 3) { return short_number(100 * share, digits) + " %"; }

}  // namespace npu_train
