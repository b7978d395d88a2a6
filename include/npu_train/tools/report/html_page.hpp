/// Reports as one self-contained HTML file: no network, no other file.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/tools/report/plot.hpp"

namespace npu_train {

/// The judgement of a value, shown by colour; the text must also state it.
enum class Tone { Plain, Good, Warn, Bad };

/// A table that the reader can sort and filter.
struct HtmlTable {
  struct Column {
    std::string name;
    bool numeric = false;  ///< right-aligned, and sorted by value
  };
  struct Cell {
    std::string text;
    std::optional<double> sort{};  ///< sort key of the row; default: the text or, in a numeric column, the number in it
    Tone tone = Tone::Plain;

    /// A cell with the text short_number(value, digits), sorted by the value. NaN sorts as larger than all numbers, since users look for
    /// it.
    static Cell number(double value, Tone tone = Tone::Plain, int digits = 4);
  };

  std::string title{};
  std::vector<Column> columns{};
  std::vector<std::vector<Cell>> rows{};
};

/// A page that grows from top to bottom. All text is escaped, whatever its source; it cannot become markup or code. Consecutive plots share
/// a row if there is room for two.
class HtmlPage {
 public:
  struct Fact {
    std::string name, value;
    Tone tone = Tone::Plain;
  };

  explicit HtmlPage(std::string title);

  void heading(const std::string& text);
  /// Adds a paragraph. A tone other than Plain makes it a coloured note.
  void paragraph(const std::string& text, Tone tone = Tone::Plain);
  /// Adds short facts side by side.
  void facts(const std::vector<Fact>& facts);
  void plot(const LinePlot& plot);
  void bars(const BarPlot& plot);
  void histogram(const Histogram& histogram);
  /// Adds a table without columns that are empty or "-" in every row. On a narrow screen, a table that does not fit shows its rows as
  /// blocks. Of more than 200 rows, the first 200 are shown until the reader requests all. Error(Usage) if the number of cells of a row
  /// differs from the number of columns.
  void table(const HtmlTable& table);

  /// Returns the complete document, with the same bytes for the same content.
  std::string str() const;

 private:
  void add(const std::string& html);
  void add_plot(const std::string& html);

  std::string title_;
  std::string body_;
  bool in_plots_ = false;
};

}  // namespace npu_train
