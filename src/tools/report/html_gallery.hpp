// Images with captions as HTML.
#pragma once

#include <string>

#include "npu_train/tools/report/html_page.hpp"

namespace npu_train::detail {

/// Returns a `<section>` with the pictures as data, and a choice of the group if there are several.
std::string gallery_html(const HtmlGallery& gallery);

}  // namespace npu_train::detail
