/// Text from values, the same under every locale of the program.
#pragma once

#include <locale>
#include <sstream>
#include <string>
#include <utility>

namespace npu_train {

/// The texts of `parts` one after the other, as `<<` writes them in the C locale: str_cat("rank ", 1003, " of ", 0.5) is "rank 1003 of
/// 0.5" even after std::locale::global(). What reaches a file, a protocol or a message is made with it, with std::to_string of an integer
/// or with text.hpp, never with a stream of the program's locale, c10::str or printf.
template <class... Parts>
std::string str_cat(const Parts&... parts) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  ((out << parts), ...);
  return std::move(out).str();
}

}  // namespace npu_train
