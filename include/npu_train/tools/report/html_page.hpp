/// Reports as one HTML file that needs nothing else: no network, no other file.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/tools/report/plot.hpp"

namespace npu_train {

/// How a value is to be taken. Shown by colour; the text must say it too.
enum class Tone { Plain, Good, Warn, Bad };

/// A table that the reader can sort and filter.
struct HtmlTable {
  struct Column {
    std::string name;
    bool numeric = false;  ///< aligned to the right, sorted by value
  };
  struct Cell {
    std::string text;
    std::optional<double> sort{};  ///< what the row is sorted by; without it the text, in a numeric column as the number it shows
    Tone tone = Tone::Plain;

    /// Shown as short_number(value, digits), sorted by the value itself. NaN counts as larger than everything: it is what one looks for.
    static Cell number(double value, Tone tone = Tone::Plain, int digits = 4);
  };

  std::string title{};
  std::vector<Column> columns{};
  std::vector<std::vector<Cell>> rows{};
};

/// A page that grows from top to bottom. All text is escaped, whoever wrote it; nothing in it can become markup or run.
/// Plots that follow each other directly share a row where there is room for two.
class HtmlPage {
 public:
  struct Fact {
    std::string name, value;
    Tone tone = Tone::Plain;
  };

  explicit HtmlPage(std::string title);

  void heading(const std::string& text);
  /// A tone other than Plain makes it a coloured note.
  void paragraph(const std::string& text, Tone tone = Tone::Plain);
  /// Short facts side by side.
  void facts(const std::vector<Fact>& facts);
  void plot(const LinePlot& plot);
  void bars(const BarPlot& plot);
  void histogram(const Histogram& histogram);
  /// Columns that are empty or "-" in every row are left out; on a narrow screen a table that does not fit shows its rows as blocks. Of
  /// more than 200 rows the first 200 are shown until the reader asks for all. Error(Usage) when a row has another number of cells than
  /// there are columns.
  void table(const HtmlTable& table);

  /// The whole document, the same bytes for the same content.
  std::string str() const;

 private:
  void add(const std::string& html);
  void add_plot(const std::string& html);

  std::string title_;
  std::string body_;
  bool in_plots_ = false;
};

}  // namespace npu_train
