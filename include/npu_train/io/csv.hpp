/// Comma-separated values (RFC 4180; https://www.rfc-editor.org/rfc/rfc4180).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace npu_train {

/// Returns one line that ends with "\n", which readers of RFC 4180 accept, for reports that people open in a terminal or a spreadsheet.
/// Cells with commas, quotes, or blanks at an end are quoted. Characters that control a terminal are escaped ("\x1b"), and a cell that a
/// spreadsheet would compute (one that begins with = + - or @ and is not a number) gets the prefix "'". read_csv returns all other cells
/// unchanged.
std::string csv_row(const std::vector<std::string>& cells);

/// Limits for reading untrusted files.
struct CsvLimits {
  uint64_t bytes = uint64_t{256} << 20;
  size_t cells = 4'000'000;
};

/// A header, and rows with one cell per column.
struct CsvTable {
  std::string source;                          ///< file name, for messages
  std::vector<std::string> columns;            ///< the header
  std::vector<std::vector<std::string>> rows;  ///< each row has columns.size() cells
  std::vector<size_t> lines;                   ///< line number in the file, from 1, at which each row begins

  bool has(std::string_view column) const;
  /// Returns the index of a column. Error(Data) if no column or more than one has this name.
  size_t index(std::string_view column) const;
  /// Returns a column as numbers. Blank cells become NaN (logs have them for values that were not measured); "nan" and "inf" are accepted
  /// in any letter case. Error(Data), with the line, for other text.
  std::vector<double> numbers(std::string_view column) const;
};

/// Parses text with a header. Quoted cells may contain commas, doubled quotes and line ends; lines end with LF, CRLF or CR; a byte order
/// mark and blank lines are skipped. Error(Data), with the line, for a row whose length differs from the header's, text after a closing
/// quote, an unterminated quote, a NUL byte, a missing header, or exceeded limits. `separator`: the character between cells, for the CSV
/// variants of other programs (semicolons, tabs).
CsvTable parse_csv(std::string_view text, const std::string& source, const CsvLimits& limits = {}, char separator = ',');

/// Reads a file as parse_csv() reads text.
CsvTable read_csv(const std::filesystem::path& path, const CsvLimits& limits = {});

}  // namespace npu_train
