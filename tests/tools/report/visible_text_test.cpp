#include "testing.hpp"

#include "npu_train/tools/report/visible_text.hpp"

using namespace npu_train::detail;

TEST_CASE("markup is escaped, and what acts unseen") {
  CHECK(escape_html("<a href='x'>\"&\x1b") == "&lt;a href=&#39;x&#39;&gt;&quot;&amp;\\x1b");
}

TEST_CASE("code points and a shortened middle") {
  CHECK(code_points("\xC3\xA9"
                    "b") == 2);
  CHECK(shorten_middle("0123456789", 10) == "0123456789");
  CHECK(shorten_middle("0123456789a", 10) == "0123...89a");
  CHECK(shorten_middle("\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9", 5) == "\xC3\xA9...\xC3\xA9");
}
