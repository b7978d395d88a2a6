#include "testing.hpp"

#include <algorithm>
#include <set>

#include "core/facts/other_names.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/facts_table.hpp"
#include "npu_train/core/message_text.hpp"

using namespace npu_train;
using namespace npu_train::detail;

TEST_CASE("a list that is cut says how many more there are") {
  std::vector<std::string> names;
  for (size_t n = 0; n <= 12; ++n) {
    const auto text = detail::first_few(names, 5);
    size_t shown = 0, more = 0;
    for (const auto& name : names) shown += text.find(name) != std::string::npos;
    if (const auto at = text.find(", and "); at != std::string::npos) more = std::stoul(text.substr(at + 6));
    CHECK(shown == std::min<size_t>(n, 5));
    CHECK(shown + more == n);
    CHECK((more > 0) == (n > 5));
    names.push_back("<" + std::to_string(n) + ">");
  }
}

TEST_CASE("the first line with something in it, without the blanks around it") {
  CHECK(first_line("5.10.0 \n2\n") == "5.10.0");
  CHECK(first_line("\n \t\r\n  an error\r\nits stack") == "an error");
  CHECK(first_line("one") == "one");
  CHECK(first_line(" \n\n").empty());
  CHECK(first_line("").empty());
}

TEST_CASE("a text without the blanks around it") {
  CHECK(trimmed_view(" \t a b\r\n") == "a b");
  const std::string_view blank = "  ";
  CHECK(trimmed_view(blank).empty());
  CHECK(trimmed_view(blank).data() == blank.data() + 2);
}

TEST_CASE("what acts on a terminal is escaped, a byte otherwise than a code point") {
  CHECK(visible_text("a\n\t\x1b[2J \xC3\xA9") == "a\\n\\t\\x1b[2J \xC3\xA9");
  CHECK(visible_text("\x80 \xC2\x80 \xE2\x80\xAE") == "\\x80 \\u0080 \\u202e");
}

TEST_CASE("a start is counted in code points, and marks omitted text") {
  CHECK(visible_start("\xC3\xA9\xC3\xA9\xC3\xA9", 2) == "\xC3\xA9\xC3\xA9...");
  CHECK(visible_start("ab", 2) == "ab");
  CHECK(visible_start("\xFF\xFF"
                      "b",
                      2) == "\\xff\\xff...");
  CHECK(visible_start("", 0).empty());
}

TEST_CASE("code points count bytes that are not UTF-8 one by one") {
  CHECK(code_points("\xC3\xA9"
                    "b") == 2);
  CHECK(code_points("\x80\x80"
                    "b") == 3);
}

TEST_CASE("of lines, their ends and tabs stay") {
  CHECK(visible_lines("a\tb\n\x1b]0;t\x07\n\n") == "a\tb\n\\x1b]0;t\\x07\n\n");
  CHECK(visible_lines("\xC2\x9B"
                      "2J\r\n") == "\\u009b2J\\r\n");
  CHECK(visible_lines("").empty());
}

TEST_CASE("words of a shell are quoted where they must be") {
  CHECK(shell_word("trainer.max_epochs=3") == "trainer.max_epochs=3");
  CHECK(shell_word("output.dir=") == "output.dir=");
  CHECK(shell_word("") == "''");
  CHECK(shell_word("output.dir=\"\"") == "'output.dir=\"\"'");
  CHECK(shell_word("it's") == "'it'\\''s'");
  CHECK(shell_word("a b;c") == "'a b;c'");
  CHECK(npu_train::shell_words({"train_app", "c.yaml", "output.dir=my runs"}) == "train_app c.yaml 'output.dir=my runs'");
}

TEST_CASE("a message without its hint") {
  CHECK(without_hint(Error(ErrorKind::Usage, "Loader", "no batch", "look; again").what()) == "[Loader] no batch");
  CHECK(without_hint(Error(ErrorKind::Usage, "Loader", "no batch").what()) == "[Loader] no batch");
}

TEST_CASE("a sentence is broken at blanks, with a prefix before its lines") {
  CHECK(wrapped("one two three four", "- ", "  ", 11) == "- one two\n  three\n  four\n");
  CHECK(wrapped("one two", "", "", 0) == "one two\n");
  CHECK(wrapped("a /a/path/that/is/too/long b", "", " ", 10) == "a\n /a/path/that/is/too/long\n b\n");
  CHECK(wrapped("größe größe", "", "", 11) == "größe größe\n");  // the width counts columns, not bytes
  CHECK(wrapped("\x1b[31m", "", "", 0) == "\\x1b[31m\n");
}

TEST_CASE("a line keeps its layout when it is broken") {
  CHECK(wrapped_line("short  line", 20) == "short  line\n");
  CHECK(wrapped_line("short  line", 0) == "short  line\n");
  CHECK(wrapped_line("  done      the first sentence and the second", 30) ==
        "  done      the first sentence\n            and the second\n");
  CHECK(wrapped_line("one two three four", 9) == "one two\n  three\n  four\n");
  CHECK(wrapped_line("  note: one two three", 14) == "  note: one\n    two three\n");
  CHECK(wrapped_line("saved /a/path/that/is/too/long now", 12) == "saved\n  /a/path/that/is/too/long\n  now\n");
  CHECK(wrapped_line(std::string(40, 'x'), 10) == std::string(40, 'x') + "\n");
  CHECK(wrapped_lines("one two\n\nthree four\n", 6) == "one\n  two\n\nthree\n  four\n");
}

TEST_CASE("names of other programs") {
  using Keys = std::vector<std::string>;
  CHECK(keys_called("learning_rate") == Keys{"optimizer.lr"});
  CHECK(keys_called("per-device-train-batch-size") == Keys{"data.batch_size"});
  CHECK(keys_called("FP16") == Keys{"precision"});
  CHECK(keys_called("type").size() == 5);
  CHECK(keys_called("no_such_name").empty());
}

TEST_CASE("no row is given twice") {
  std::set<std::vector<std::string>> seen;
  for (const auto& row : detail::facts_texts(facts::other_names, "other_names.tsv", 2)) {
    CAPTURE(row[0]);
    CHECK(seen.insert(row).second);
  }
}
