#include "npu_train/tools/report/page_origin.hpp"

#include <array>
#include <ctime>

#include "npu_train/core/command_line.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/tools/report/visible_text.hpp"

namespace npu_train {

PageOrigin PageOrigin::here() {
  const auto now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> date{};
  std::strftime(date.data(), date.size(), "%Y-%m-%d %H:%M UTC", &parts);
  return {date.data(), command_line(), NPU_TRAIN_VERSION};
}

std::string with_origin(const std::string& page, const PageOrigin& origin) {
  const auto end = page.rfind("</main>");
  check(end != std::string::npos, ErrorKind::Usage, "with_origin", "the text is not a page of HtmlPage");
  const auto text = [](const std::string& part) { return detail::escape_html(part); };
  return page.substr(0, end) + "<footer>\n" + (origin.command.empty() ? "" : "<p><code>" + text(origin.command) + "</code></p>\n") +
         "<p>npu_train " + text(origin.version) + " \u00b7 " + text(origin.date) + "</p>\n</footer>\n" + page.substr(end);
}

void write_page(const std::filesystem::path& path, const std::string& page) {
  write_file_atomic(path, with_origin(page, PageOrigin::here()));
}

}  // namespace npu_train
