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

    /// A cell with the text short_number(value, digits), sorted by the value. NaN sorts as larger than all numbers, since users look for
    /// it.
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
    int64_t scale = 1;              ///< size on the page in pixels of the file; enlarged pixels keep their edges
    /// Below the picture: names with values, such as classes with probabilities. An empty value has no column.
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
  std::string group_name{};  ///< the meaning of a group: "class"
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
  /// Adds a table without columns that are empty or "-" in every row. On a narrow screen, a table that does not fit shows its rows as
  /// blocks. Of more than 200 rows, the first 200 are shown until the reader requests all. Error(Usage) if the number of cells of a row
  /// differs from the number of columns.
  void table(const HtmlTable& table);
  /// The pictures are a part of the page. All of them are shown if the page's script does not run.
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

/// The origin of a page: the last line of each page that a program writes.
struct PageOrigin {
  std::string date;     ///< "2026-05-31 17:04 UTC"
  std::string command;  ///< command that wrote the page; may be empty
  std::string version;  ///< version of the library

  /// Returns the origin of this process at this time.
  static PageOrigin here();
};

/// Returns HtmlPage::str() with a footer that names the origin.
std::string with_origin(const std::string& page, const PageOrigin& origin);

/// Writes a page with the origin of this process, like write_file_atomic().
void write_page(const std::filesystem::path& path, const std::string& page);

}  // namespace npu_train
