#include "npu_train/core/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "npu_train/core/c_locale.hpp"

namespace npu_train {
namespace {

// Normalises case and separators, which users often confuse.
std::string comparable(std::string_view text) {
  auto out = to_lower(text);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

// Returns the edit distance in which swapping two neighbours is one edit (optimal string alignment).
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

// Returns the edit distance of two names that resemble each other; nullopt for others.
std::optional<size_t> resemblance(std::string_view given, const std::string& candidate) {
  constexpr size_t kLongest = 200;
  if (given.empty() || given.size() > kLongest || candidate.size() > kLongest) return std::nullopt;
  const auto distance = edit_distance(comparable(given), comparable(candidate));
  const bool in_common = distance < std::max(given.size(), candidate.size());
  return in_common && distance <= std::max<size_t>(1, given.size() / 3) ? std::optional(distance) : std::nullopt;
}

}  // namespace

std::string nearest_name(std::string_view given, const std::vector<std::string>& candidates) {
  std::string best;
  std::optional<size_t> least;
  for (const auto& candidate : candidates) {
    const auto distance = resemblance(given, candidate);
    if (!distance || (least && *distance >= *least)) continue;
    least = distance;
    best = candidate;
  }
  return best;
}

std::vector<std::string> nearest_first(std::string_view given, std::vector<std::string> candidates) {
  constexpr size_t kApart = std::numeric_limits<size_t>::max();
  std::vector<std::pair<size_t, std::string>> ranked;
  for (auto& candidate : candidates) {
    const auto distance = resemblance(given, candidate).value_or(kApart);
    ranked.emplace_back(distance, std::move(candidate));
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::transform(ranked.begin(), ranked.end(), candidates.begin(), [](auto& entry) { return std::move(entry.second); });
  return candidates;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::string with_commas(int64_t value) {
  auto digits = std::to_string(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string human_bytes(double bytes) {
  static constexpr std::array<const char*, 6> units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (!std::isfinite(bytes)) return shortest(bytes) + " B";
  size_t unit = 0;
  while (std::abs(bytes) >= 1024 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  // Switches to the next unit before rounding would give "1024.0", as for 1023.96.
  if (unit > 0 && std::abs(bytes) >= 1023.95 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  return printed(unit == 0 ? "%.0f " : "%.1f ", bytes) + units[unit];
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  auto unit = text.substr(static_cast<size_t>(end - text.data()));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const auto& [name, bytes] : kUnits)
    if (unit == name && value >= 0 && value * bytes < 0x1p62) return static_cast<int64_t>(value * bytes);
  return std::nullopt;
}

std::string human_duration(double seconds) {
  if (!std::isfinite(seconds)) return "unknown time";
  if (seconds < 0) return std::string("-").append(human_duration(-seconds));
  if (seconds < 1) return printed("%.0f ms", seconds * 1000);
  if (seconds < 9.95) return printed("%.1f s", seconds);
  auto whole = std::llround(std::min(seconds, 1e15));
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return printed("%lld min %02lld s", whole / 60, whole % 60);
  return printed("%lld h %02lld min", whole / 3600, whole / 60 % 60);
}

std::string shortest(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> out{};
  const auto [end, error] = std::to_chars(out.data(), out.data() + out.size(), value);
  return error == std::errc() ? std::string(out.data(), end) : std::to_string(value);
}

std::optional<double> decimal_number(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) return std::nullopt;
  if (error != std::errc::result_out_of_range) return value;
  const CLocale scope;
  return std::strtod(std::string(text).c_str(), nullptr);  // the value is inf or nearly 0
}

std::string printed(const char* format, ...) {
  const CLocale scope;
  std::va_list values, again;
  va_start(values, format);
  va_copy(again, values);
  std::string out(static_cast<size_t>(std::max(0, std::vsnprintf(nullptr, 0, format, values))), '\0');
  std::vsnprintf(out.data(), out.size() + 1, format, again);
  va_end(again);
  va_end(values);
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out(text);
  for (auto& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

}  // namespace npu_train
