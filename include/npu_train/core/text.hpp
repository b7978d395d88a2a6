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

/// Lower case, ASCII only.
std::string to_lower(std::string_view text);

}  // namespace npu_train
