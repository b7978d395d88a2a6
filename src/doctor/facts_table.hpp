// Tables of facts (facts/*.tsv) as rows of cells.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace npu_train::detail {

// The rows below the line that names the columns; '#' begins a comment line, "-" is an empty cell. Error(Internal) for a row of another
// number of cells.
std::vector<std::vector<std::string>> facts_rows(std::string_view table, const char* name);

// The rest of the comment line that begins with `key`: "# as of: 2026-11-21".
std::string facts_note(std::string_view table, std::string_view key);

}  // namespace npu_train::detail
