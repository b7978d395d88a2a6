#include "npu_train/core/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace npu_train {
namespace {

// As people mistype it: case and the choice of separator do not count.
std::string comparable(std::string_view text) {
  auto out = to_lower(text);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

// Edit distance with neighbours swapped counted as one edit.
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

std::string printed(const char* format, double value) {
  std::array<char, 64> out{};
  std::snprintf(out.data(), out.size(), format, value);
  return out.data();
}

}  // namespace

std::string nearest_name(std::string_view given, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 200;
  if (given.empty() || given.size() > kLongest) return "";
  const auto wanted = comparable(given);
  std::string best;
  size_t best_distance = std::max<size_t>(1, wanted.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    if (candidate.size() > kLongest) continue;
    auto distance = edit_distance(wanted, comparable(candidate));
    if (distance >= std::max(wanted.size(), candidate.size())) continue;  // nothing in common
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
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
  // 1023.96 would read "1024.0".
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
  std::array<char, 64> out{};
  if (whole < 3600) {
    std::snprintf(out.data(), out.size(), "%lld min %02lld s", whole / 60, whole % 60);
  } else {
    const auto minutes = whole / 60;
    std::snprintf(out.data(), out.size(), "%lld h %02lld min", minutes / 60, minutes % 60);
  }
  return out.data();
}

std::string shortest(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> out{};
  const auto [end, error] = std::to_chars(out.data(), out.data() + out.size(), value);
  return error == std::errc() ? std::string(out.data(), end) : std::to_string(value);
}

std::string to_lower(std::string_view text) {
  std::string out(text);
  for (auto& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

}  // namespace npu_train
