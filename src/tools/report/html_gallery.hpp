// Images with captions as HTML.
#pragma once

#include <string>

#include "npu_train/tools/report/html_page.hpp"

namespace npu_train::detail {

/// Returns a `<section>` that contains the files of the pictures, and a selector of the group if there are several groups.
std::string gallery_html(const HtmlGallery& gallery);

}  // namespace npu_train::detail
