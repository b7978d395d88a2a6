/// Formats values as text, independent of the program's locale.
#pragma once

#include <locale>
#include <sstream>
#include <string>
#include <utility>

namespace npu_train {

/// Concatenates the parts as `<<` writes them in the C locale: str_cat("rank ", 1003, " of ", 0.5) is "rank 1003 of 0.5" even after
/// std::locale::global(). For files, protocols and messages, use this function, std::to_string of integers or text.hpp; never a stream in
/// the program's locale, c10::str or printf.
template <class... Parts>
std::string str_cat(const Parts&... parts) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  ((out << parts), ...);
  return std::move(out).str();
}

}  // namespace npu_train
