// Tables of a page.
#pragma once

#include <string>

#include "npu_train/tools/report/html_page.hpp"

namespace npu_train::detail {

/// Returns "good", "warn" or "bad"; "" for Plain.
std::string tone_class(Tone tone);

std::string table_html(const HtmlTable& table);

}  // namespace npu_train::detail
