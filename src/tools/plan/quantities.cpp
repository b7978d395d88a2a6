#include "npu_train/tools/plan/quantities.hpp"

#include <charconv>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {
namespace {

using QuantityUnit = std::pair<std::string_view, double>;

constexpr QuantityUnit kBandwidths[] = {{"B/s", 1},       {"KB/s", 1e3},       {"MB/s", 1e6},       {"GB/s", 1e9},
                                        {"TB/s", 1e12},   {"KiB/s", 0x1p10},   {"MiB/s", 0x1p20},   {"GiB/s", 0x1p30},
                                        {"bit/s", 0.125}, {"Kbit/s", 1e3 / 8}, {"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8}};
constexpr QuantityUnit kTimes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
constexpr QuantityUnit kFlops[] = {{"MFLOPs", 1e6}, {"GFLOPs", 1e9}, {"TFLOPs", 1e12}, {"PFLOPs", 1e15}};

// Returns the value of a text that consists of a finite number and one of the units; NaN for any other text.
double quantity(std::string_view text, std::span<const QuantityUnit> units) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value)) return NAN;
  auto unit = text.substr(static_cast<size_t>(end - text.data()));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const auto& [name, size] : units)
    if (unit == name) return value * size;
  return NAN;
}

// Formats a value in the largest unit that does not exceed it.
std::string shown(double value, std::span<const QuantityUnit> units) {
  const auto* best = &units.front();
  for (const auto& unit : units)
    if (value >= unit.second && unit.second > best->second) best = &unit;
  return short_number(value / best->second, 3) + " " + std::string(best->first);
}

}  // namespace

double bytes_per_second_of(const char* where, const std::string& text) {
  const double value = quantity(text, kBandwidths);
  check(value > 0 && std::isfinite(value), ErrorKind::Usage, where, "'", text,
        "' is not a bandwidth; allowed: a number above 0 and B/s, KB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, GiB/s, bit/s, Kbit/s, Mbit/s or "
        "Gbit/s, as in 25GB/s");
  return value;
}

double seconds_of(const char* where, const std::string& text) {
  const double value = quantity(text, kTimes);
  check(value >= 0 && std::isfinite(value), ErrorKind::Usage, where, "'", text,
        "' is not a time; allowed: a number of 0 or more and ns, us, ms or s, as in 5us");
  return value;
}

double flops_of(const char* where, const std::string& text) {
  const double value = quantity(text, kFlops);
  check(value > 0 && std::isfinite(value), ErrorKind::Usage, where, "'", text,
        "' is not a speed of computation; allowed: a number above 0 and MFLOPs, GFLOPs, TFLOPs or PFLOPs, as in 300TFLOPs");
  return value;
}

LinkSpeed link_of(const char* where, const std::string& text) {
  const auto comma = text.find(',');
  LinkSpeed out{.bytes_per_second = bytes_per_second_of(where, text.substr(0, comma))};
  if (comma != std::string::npos) out.latency = seconds_of(where, text.substr(comma + 1));
  return out;
}

std::string rate_text(double bytes_per_second) { return shown(bytes_per_second, std::span(kBandwidths).first(5)); }
std::string seconds_text(double seconds) { return shown(seconds, kTimes); }
std::string flops_text(double per_second) { return shown(per_second, kFlops); }

}  // namespace npu_train
