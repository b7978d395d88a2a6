#include "testing.hpp"

#include <filesystem>
#include <regex>
#include <set>

#include "npu_train/core/facts_table.hpp"
#include "npu_train/io/file.hpp"
#include "tools/align/causes.hpp"
#include "tools/align/facts/causes.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("every cause that the code says is a row, and every row is said") {
  std::set<std::string> said, rows;
  const std::regex statement(R"([^.\w]say\([^;]*;)"), name(R"((?:say\((?:\w+, )?|[?:] )\"([a-z][a-z0-9_]*)\")");
  const auto each = [](const std::string& text, const std::regex& what, const auto& take) {
    for (std::sregex_iterator found(text.begin(), text.end(), what), end; found != end; ++found) take(*found);
  };
  for (const auto& file : std::filesystem::directory_iterator(NPU_TRAIN_SOURCE_DIR "/src/tools/align"))
    if (file.path().extension() == ".cpp")
      each(read_file(file.path(), 1 << 20), statement,
           [&](const auto& found) { each(found.str(), name, [&](const auto& word) { said.insert(word[1]); }); });
  for (const auto& row : npu_train::detail::facts_texts(facts::causes, "causes.tsv", 3)) {
    CHECK_MESSAGE(rows.insert(row[0]).second, row[0]);
    CHECK_MESSAGE(!(row[1] + row[2]).empty(), row[0]);
  }
  CHECK(said == rows);
}

TEST_CASE("a cause names its values, whatever they contain") {
  std::vector<std::string> likely{"before"}, advice;
  npu_train::detail::add_cause("optimizer_option", {"{2}", "0.9", "{1}"}, likely, advice);
  CHECK(likely == std::vector<std::string>{"before", "different {2}: 0.9 and {1}"});
  CHECK(advice == std::vector<std::string>{"compare the configurations: npu_tool compare A.yaml B.yaml"});
}
