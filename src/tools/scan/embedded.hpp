// Code inside a file of another language: cells of notebooks, texts of `python -c`, here-documents.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/scan/file_scan.hpp"

namespace npu_train::detail::scan {

/// Decoded code, and the position of each of its bytes in the file.
class EmbeddedCode {
 public:
  void add(char decoded, size_t begin, size_t end) {
    code_ += decoded;
    places_.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
  }
  /// Adds bytes that are not encoded.
  void add(std::string_view text, size_t begin) {
    for (const char c : text) add(c, begin, begin + 1), ++begin;
  }
  const std::string& code() const { return code_; }
  /// Returns where byte `i` of the code begins and ends in the file.
  std::pair<size_t, size_t> place(size_t i) const { return {places_[i].begin, places_[i].end}; }

  /// Encodes an edit's text as it is written in the file.
  using Encode = std::string (*)(std::string_view);
  /// Scans the code as Python and reports findings at their places in the file. Edits of text that is not contiguous are omitted.
  void scan_as_python(FileScan& scan, const IsLocalModule& is_local, Encode encode) const;

 private:
  struct Place {
    uint32_t begin, end;
  };
  bool in_one_piece(const Edit& edit) const;

  std::string code_;
  std::vector<Place> places_;
};

}  // namespace npu_train::detail::scan
