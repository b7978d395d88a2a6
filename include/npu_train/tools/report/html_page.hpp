/// Reports as one self-contained HTML file: no network, no other file.
#pragma once

#include <cstdint>
#include <filesystem>
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

    /// Returns a cell with the text short_number(value, digits) that is sorted by the value. NaN sorts as larger than all numbers, since
    /// users look for it.
    static Cell number(double value, Tone tone = Tone::Plain, int digits = 4);
  };

  std::string title{};
  std::vector<Column> columns{};
  std::vector<std::vector<Cell>> rows{};
};

/// Images with captions, which the reader can filter by group and by text.
struct HtmlGallery {
  struct Picture {
    std::string file;               ///< the bytes of a PNG or JPEG file; "": there is no picture, and `lines` say why
    int64_t height = 0, width = 0;  ///< in pixels of the file
    int64_t scale = 1;              ///< magnification on the page; magnified pixels keep their edges
    /// Lines below the picture, each a name with a value, such as a class with its probability. An empty value is not shown.
    std::vector<std::pair<std::string, std::string>> lines{};
  };
  /// One picture, or several side by side.
  struct Item {
    std::string title;
    std::string group;  ///< "": none
    std::vector<Picture> pictures{};
    Tone tone = Tone::Plain;
  };

  std::string title{};
  std::string group_name{};  ///< what the groups are, such as "class"
  std::vector<Item> items{};
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
  /// Adds a table. A column that is empty or "-" in every row is omitted. On a narrow screen, a table that does not fit shows its rows as
  /// blocks. If there are more than 200 rows, the first 200 are shown until the reader requests all. Error(Usage) if the number of cells of
  /// a row differs from the number of columns.
  void table(const HtmlTable& table);
  /// Adds pictures, whose files become a part of the page. All of them are shown if the page's script does not run.
  void gallery(const HtmlGallery& gallery);

  /// Returns the complete document, with the same bytes for the same content.
  std::string str() const;

 private:
  void add(const std::string& html);
  void add_plot(const std::string& html);

  std::string title_;
  std::string body_;
  bool in_plots_ = false;
};

/// The origin of a page, which is shown at the end of each page that a program writes.
struct PageOrigin {
  std::string date;     ///< "2026-05-31 17:04 UTC"
  std::string command;  ///< command that wrote the page; may be empty
  std::string version;  ///< version of the library

  /// Returns the origin of a page that this process writes now.
  static PageOrigin here();
};

/// Returns `page`, the result of HtmlPage::str(), with a footer that names the origin.
std::string with_origin(const std::string& page, const PageOrigin& origin);

/// Writes a page with the origin of this process, like write_file_atomic().
void write_page(const std::filesystem::path& path, const std::string& page);

}  // namespace npu_train
