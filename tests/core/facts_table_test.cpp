#include "testing.hpp"

#include "npu_train/core/error.hpp"
#include "npu_train/core/facts_table.hpp"

using namespace npu_train;
using npu_train::testing::error_of, npu_train::testing::has;

TEST_CASE("rows of a table of facts") {
  constexpr std::string_view kTable = "# what it is\n# as of: 2026-11-22\nname\thours\tadvice\n\nfirst\t2\t-\n# between\nsecond\t\tdo it\n";
  const auto rows = detail::facts_rows(kTable, "t.tsv", 3);
  REQUIRE(rows.size() == 2);
  CHECK((rows[0] == std::vector<std::string_view>{"first", "2", "-"}));
  CHECK((rows[1] == std::vector<std::string_view>{"second", "", "do it"}));
  CHECK((detail::facts_texts(kTable, "t.tsv", 3)[0] == std::vector<std::string>{"first", "2", ""}));
  CHECK(detail::facts_note(kTable, "as of") == "2026-11-22");
  CHECK(detail::facts_note(kTable, "what").empty());
  CHECK(detail::facts_rows("name\thours\n", "t.tsv", 2).empty());
}

TEST_CASE("a row with a wrong number of cells, and a table without column names, are internal errors") {
  const auto error = error_of([] { detail::facts_rows("a\tb\n1\t2\n3\n", "t.tsv", 2); });
  CHECK(error.kind() == ErrorKind::Internal);
  CHECK(has(error.what(), "a row of 1 cells for 2 columns: 3"));
  CHECK(has(error_of([] { detail::facts_rows("a\tb\n", "t.tsv", 3); }).what(), "t.tsv"));
  CHECK(has(error_of([] { detail::facts_rows("# nothing\n", "t.tsv", 3); }).what(), "names the columns"));
}

TEST_CASE("pieces between separators") {
  CHECK((detail::split_view("a,,b", ',') == std::vector<std::string_view>{"a", "", "b"}));
  CHECK((detail::split_view("", ',') == std::vector<std::string_view>{""}));
}
