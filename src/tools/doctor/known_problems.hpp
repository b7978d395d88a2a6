// The tables of codes and symptoms, ready to be looked for in a text.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "npu_train/tools/doctor/explain.hpp"

namespace npu_train::detail {

// One place in a text with a known problem, or with a word that indicates one.
struct Hit {
  enum class Kind { KnownProblem, ErrorWord, CodeFollows };  // "error", "fatal", "exception"; "error code is", "errcode"
  Kind kind = Kind::KnownProblem;
  const npu_train::KnownProblem* problem = nullptr;  // for an `KnownProblem`
  size_t place = 0, length = 0;
};

// Calls `found` for every code, symptom and indicating word in `line`. Codes are separate words (no adjacent letter or digit). Numbers
// count only with `context`: a word of an error ("error", "code", "ret", "acl", "status") occurs shortly before; without it, every number
// of a code counts.
void find_known_problems(std::string_view line, bool context, const std::function<void(const Hit&)>& found);

// By the family of a code, if the table does not contain the code itself: ERR and five digits, or six digits as in CANN.
std::optional<KnownProblem> family_of(std::string_view code);

}  // namespace npu_train::detail
