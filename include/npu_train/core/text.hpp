/// Small helpers for messages and for formatting values; none depends on the program's locale.
#pragma once

#include <cstdint>
#include <locale>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace npu_train {

/// Returns the candidate nearest to `given` by edit distance, or "" if none is near enough.
std::string nearest_name(std::string_view given, const std::vector<std::string>& candidates);

/// Sorts the candidates for a list in a message: those that resemble `given` first, nearest first.
std::vector<std::string> nearest_first(std::string_view given, std::vector<std::string> candidates);

/// Joins with a separator: "a, b, c".
std::string join(const std::vector<std::string>& parts, std::string_view separator = ", ");

/// Formats 1234567 as "1,234,567".
std::string with_commas(int64_t value);

/// Formats bytes for display: "3.1 GiB".
std::string human_bytes(double bytes);

/// Parses "2GiB", "1.5 MB", "100B": a number and B, KiB, MiB, GiB, TiB (powers of 1024) or KB, MB, GB, TB (powers of 1000). nullopt for
/// other text, negative numbers and numbers of at least 2^62.
std::optional<int64_t> parse_bytes(std::string_view text);

/// Formats seconds for display: "2 h 03 min", "41 s".
std::string human_duration(double seconds);

/// Returns the shortest decimal text that reads back as the same double ("0.1", "1e-05", "inf").
std::string shortest(double value);

/// Parses a number that is the complete text, as strtod does in the C locale: "0.5", "+1e-3", "inf", "nan"; out-of-range numbers give inf
/// or 0. nullopt for other text, such as "0,5", " 1" and "12a".
std::optional<double> decimal_number(std::string_view text);

/// printf() to a string, always in the C locale: printed("%.2f", 0.5) is "0.50".
[[gnu::format(printf, 1, 2)]] std::string printed(const char* format, ...);

/// Converts ASCII letters to lower case.
std::string to_lower(std::string_view text);

/// Concatenates the parts as `<<` writes them in the C locale: str_cat("rank ", 1003, " of ", 0.5) is "rank 1003 of 0.5" even after
/// std::locale::global(). For files, protocols and messages, use this function, std::to_string of integers or the functions above; never
/// a stream in the program's locale, c10::str or printf.
template <class... Parts>
std::string str_cat(const Parts&... parts) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  ((out << parts), ...);
  return std::move(out).str();
}

}  // namespace npu_train
