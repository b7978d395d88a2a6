// The folders of a dump: step<N>/rank<R>.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "npu_train/core/read_text.hpp"

namespace npu_train::detail {

// Returns the N of "<word>N"; nullopt for anything else, such as "step3_kept".
inline std::optional<int64_t> number_after(std::string_view name, std::string_view word) {
  if (!name.starts_with(word)) return std::nullopt;
  const auto number = whole_number(name.substr(word.size()));
  return number && *number >= 0 ? number : std::nullopt;
}

// The files that describe the values of a step. kDumpJson describes the values of calls, and kDebugJson describes the values that a program
// has named (level debug of msprobe).
inline constexpr const char *kDumpJson = "dump.json", *kDebugJson = "debug.json";

// Returns the path of the kDumpJson or kDebugJson in a step's folder; empty if it has neither.
inline std::filesystem::path description_in(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const char* name : {kDumpJson, kDebugJson})
    if (std::filesystem::exists(folder / name, ignored)) return folder / name;
  return {};
}

inline std::filesystem::path rank_folder(const std::filesystem::path& step_folder, int rank) {
  return step_folder / ("rank" + std::to_string(rank));
}
inline std::filesystem::path rank_folder(const std::filesystem::path& dump, int64_t step, int rank) {
  return rank_folder(dump / ("step" + std::to_string(step)), rank);
}

}  // namespace npu_train::detail
