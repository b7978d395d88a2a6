// Finds the codes and symptoms of the tables in a text.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "npu_train/tools/doctor/explain.hpp"

namespace npu_train::detail {

// A place in a text with a known problem, or with a word that indicates a problem.
struct Hit {
  // ErrorWord: "error", "fatal", "exception"; CodeFollows: "error code is", "errcode".
  enum class Kind { KnownProblem, ErrorWord, CodeFollows };
  Kind kind = Kind::KnownProblem;
  const npu_train::KnownProblem* problem = nullptr;  // only for KnownProblem
  size_t place = 0, length = 0;
};

// Calls `found` for every code, symptom and indicating word in `line`. Codes are separate words (no adjacent letter or digit). With
// `context`, a number counts only if a word such as "error", "code", "ret", "acl" or "status" occurs shortly before it; without `context`,
// every number that is a code counts. A negated symptom ("no overflow") is not found, and sets `negated`.
void find_known_problems(std::string_view line, bool context, const std::function<void(const Hit&)>& found, bool* negated = nullptr);

// Describes a code that is not in the table by its family: "ERR" and five digits, or six digits as in CANN. nullopt for other text.
std::optional<KnownProblem> family_of(std::string_view code);

}  // namespace npu_train::detail
