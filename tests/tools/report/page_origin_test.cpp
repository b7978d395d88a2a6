#include "testing.hpp"

#include "npu_train/core/version.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/tools/report/html_page.hpp"
#include "npu_train/tools/report/page_origin.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("a page ends with command, version and date, escaped") {
  const auto page = with_origin(HtmlPage("A page").str(), {"2026-05-31 17:04 UTC", "npu_tool bench --html '<b>.html'", "1.2.3"});
  CHECK(has(page,
            "<footer>\n<p><code>npu_tool bench --html &#39;&lt;b&gt;.html&#39;</code></p>\n<p>npu_train 1.2.3 \u00b7 2026-05-31 17:04 "
            "UTC</p>\n</footer>\n</main>"));
  CHECK(error_of([] { with_origin("no page", {}); }).kind() == ErrorKind::Usage);
}

TEST_CASE("the origin of this process") {
  const auto origin = PageOrigin::here();
  CHECK(origin.version == NPU_TRAIN_VERSION);
  CHECK(has(origin.command, "test_report"));
  CHECK(origin.date.ends_with(" UTC"));
}

TEST_CASE("a page that is written to a file has its origin") {
  const TempDir dir;
  write_page(dir / "page.html", HtmlPage("A page").str());
  const auto page = read_file(dir / "page.html", 1 << 20);
  CHECK(has(page, "<footer>\n<p><code>"));
  CHECK(has(page, "npu_train " NPU_TRAIN_VERSION " \u00b7 "));
}
