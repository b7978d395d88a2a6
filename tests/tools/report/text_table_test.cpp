#include "testing.hpp"

#include "npu_train/tools/report/text_table.hpp"

#include <algorithm>
#include <sstream>

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;

namespace {

size_t longest_line(const std::string& text) {
  size_t out = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out = std::max(out, line.size());
  return out;
}

}  // namespace

TEST_CASE("text is aligned left, numbers right, without blanks at the end") {
  TextTable table({"layer", "max error", "size", "share", "verdict"});
  table.add_row({"conv1", "1.5e-3", "1,234", "98.2 %", "good"});
  table.add_row({"layer1.0.conv1", "-nan", "-", "", ""});
  table.add_row({"fc", "12", "7", "3 %", "too far"});
  CHECK(table.str() ==
        "layer           max error   size   share  verdict\n"
        "--------------  ---------  -----  ------  -------\n"
        "conv1              1.5e-3  1,234  98.2 %  good\n"
        "layer1.0.conv1       -nan      -\n"
        "fc                     12      7     3 %  too far\n");
  CHECK(TextTable({"a", "b"}).str() == "a  b\n-  -\n");
}

TEST_CASE("a column with one word among its numbers is text") {
  TextTable table({"value", "hex"});
  table.add_row({"1", "0x1f"});
  table.add_row({"none", "12"});
  table.add_row({"--5", "1 2"});
  CHECK(table.str() == "value  hex\n-----  ----\n1      0x1f\nnone   12\n--5    1 2\n");
}

TEST_CASE("code points count, not bytes") {
  TextTable table({"name", "n"});
  table.add_row({"größe", "1"});
  table.add_row({"层", "22"});
  CHECK(table.str() == "name    n\n-----  --\ngröße   1\n层      22\n");
}

TEST_CASE("hostile cells cannot act on the terminal") {
  TextTable table({"na\x1b[2Jme"});
  table.add_row(
      {"\x1b]0;title\x07 a\r\nb\tc \x7f \xc2\x9b"
       "31m \xff \xc0\x80 \xed\xa0\x80 \xe2\x80\xae"
       "evil \xf4\x90\x80\x80 \xe2\x82"});
  table.add_row({std::string("nul\0", 4)});
  const auto text = table.str();
  for (const unsigned char c : text) CHECK((c == '\n' || (c >= 0x20 && c < 0x7F)));
  CHECK(has(text, "na\\x1b[2Jme"));
  CHECK(has(
      text,
      "\\x1b]0;title\\x07 a\\r\\nb\\tc \\x7f \\u009b31m \\xff \\xc0\\x80 \\xed\\xa0\\x80 \\u202eevil \\xf4\\x90\\x80\\x80 \\xe2\\x82\n"));
  CHECK(has(text, "nul\\x00\n"));
}

TEST_CASE("a width breaks the widest text, and nothing is omitted") {
  TextTable table({"layer", "kind", "max error"});
  table.add_row({"encoder.blocks.11.attention.output.weight", "linear weight", "1.25e-05"});
  table.add_row({"fc", "bias", "123456789012345"});
  CHECK(longest_line(table.str()) == 41 + 2 + 13 + 2 + 15);
  CHECK(table.str(100) == table.str());
  for (size_t width = 10 + 2 + 10 + 2 + 15; width <= 73; ++width) {
    const auto text = table.str(width);
    CHECK(longest_line(text) <= width);
    CHECK(has(text, "123456789012345\n"));  // numbers are not broken
  }
  CHECK(table.str(50) ==
        "layer               kind                 max error\n"
        "------------------  -------------  ---------------\n"
        "encoder.blocks.11.  linear weight         1.25e-05\n"
        "attention.output.\n"
        "weight\n"
        "fc                  bias           123456789012345\n");
}

TEST_CASE("text is broken at blanks first; a word without any where the line is full") {
  TextTable table({"", "seen", "hours"});
  table.add_row({"note", "made of add, view, zeros, which the tables have", "0.5"});
  table.add_row({"check", "short", ""});
  CHECK(table.str(40) ==
        "       seen                        hours\n"
        "-----  --------------------------  -----\n"
        "note   made of add, view, zeros,     0.5\n"
        "       which the tables have\n"
        "check  short\n");
  TextTable names({"name"});
  names.add_row({"äö " + std::string(14, 'x') + " b"});
  CHECK(names.str(11) == "name\n-----------\näö\nxxxxxxxxxxx\nxxx b\n");
  TextTable letters({"name"});
  letters.add_row({"äöüäöüäöüäöüäöüäöü"});
  CHECK(letters.str(12) == "name\n------------\näöüäöüäöüäöü\näöüäöü\n");
}

TEST_CASE("empty columns are omitted") {
  TextTable table({"layer", "note", "error", "message"});
  table.add_row({"conv1", "", "0.1", "-"});
  table.add_row({"fc", "", "", ""});
  CHECK(table.str() == "layer  error\n-----  -----\nconv1    0.1\nfc\n");
  CHECK(TextTable({"a", "b"}).str() == "a  b\n-  -\n");
}

TEST_CASE("headers of numbers are broken where the line is too long; then rows become blocks") {
  TextTable table({"layer", "largest difference", "mean difference"});
  table.add_row({"layer1.0.conv1", "0.5", "12"});
  table.add_row({"fc", "", "1"});
  CHECK(table.str(41) ==
        "layer              largest        mean\n"
        "                difference  difference\n"
        "--------------  ----------  ----------\n"
        "layer1.0.conv1         0.5          12\n"
        "fc                                   1\n");
  CHECK(table.str(30) ==
        "layer            layer1.0.\n"
        "                 conv1\n"
        "largest          0.5\n"
        "difference\n"
        "mean difference  12\n"
        "\n"
        "layer            fc\n"
        "mean difference  1\n");
}

TEST_CASE("a long hostile name costs its length and no more") {
  TextTable table({"name", "n"});
  table.add_row({std::string(2'000'000, '\x1b'), "1"});
  CHECK(longest_line(table.str(80)) == 80);
}

TEST_CASE("rows that do not fit the columns are refused") {
  TextTable table({"a", "b"});
  const auto e = error_of([&] { table.add_row({"1"}); });
  CHECK(e.kind() == ErrorKind::Usage);
  CHECK(has(e.what(), "1 cells for 2 columns"));
  CHECK(error_of([] { TextTable({}); }).kind() == ErrorKind::Usage);
}
