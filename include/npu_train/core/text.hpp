/// Small helpers for messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace npu_train {

/// The candidate nearest to `given` by edit distance, or "" if none is near enough.
std::string nearest_name(std::string_view given, const std::vector<std::string>& candidates);

/// The candidates, those that resemble `given` first and the nearest one before all: for a message that lists them.
std::vector<std::string> nearest_first(std::string_view given, std::vector<std::string> candidates);

/// "a, b, c".
std::string join(const std::vector<std::string>& parts, std::string_view separator = ", ");

/// 1234567 -> "1,234,567".
std::string with_commas(int64_t value);

/// Bytes for people: "3.1 GiB".
std::string human_bytes(double bytes);

/// "2GiB", "1.5 MB", "100B" as bytes: a number and B, KiB, MiB, GiB, TiB (of 1024) or KB, MB, GB, TB (of 1000). Nothing for other text,
/// for negative numbers and for numbers beyond 2^62.
std::optional<int64_t> parse_bytes(std::string_view text);

/// Seconds for people: "2 h 03 min", "41 s".
std::string human_duration(double seconds);

/// The shortest decimal text that reads back as the same double ("0.1", "1e-05", "inf").
std::string shortest(double value);

/// The number of which `text` consists, as strtod reads it under the C locale: "0.5", "+1e-3", "inf", "nan"; a number beyond the range of
/// double is inf or 0. nullopt for anything else, such as "0,5", " 1" and "12a".
std::optional<double> decimal_number(std::string_view text);

/// printf() into a text, under the C locale in every program: printed("%.2f", 0.5) is "0.50".
[[gnu::format(printf, 1, 2)]] std::string printed(const char* format, ...);

/// Lower case, ASCII only.
std::string to_lower(std::string_view text);

}  // namespace npu_train
