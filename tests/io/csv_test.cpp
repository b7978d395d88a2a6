#include "testing.hpp"

#include "npu_train/io/csv.hpp"

#include <cmath>
#include <random>

#include "npu_train/io/file.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;
using npu_train::testing::kInf;
using npu_train::testing::TempDir;
using Rows = std::vector<std::vector<std::string>>;

TEST_CASE("rows are quoted where they must be") {
  CHECK(csv_row({"a", "1.5", ""}) == "a,1.5,\n");
  CHECK(csv_row({"a,b", "say \"x\""}) == "\"a,b\",\"say \"\"x\"\"\"\n");
  CHECK(csv_row({" a", "a ", "a b"}) == "\" a\",\"a \",a b\n");
  CHECK(csv_row({""}) == "\"\"\n");
}

TEST_CASE("no cell acts on a terminal or is computed by a spreadsheet; numbers stay numbers") {
  CHECK(csv_row({"=1+1", "-x", "@a", "+b", "=HYPERLINK(\"http://a\",1)"}) == "'=1+1,'-x,'@a,'+b,\"'=HYPERLINK(\"\"http://a\"\",1)\"\n");
  CHECK(csv_row({"-1.5e-3", "+2", "-inf", "nan", "-", "a-b", "1=1"}) == "-1.5e-3,+2,-inf,nan,'-,a-b,1=1\n");
  CHECK(csv_row({"a\x1b]0;x\x07", "two\nlines", "\t=1",
                 "\xC2\x9B"
                 "2J"}) == "a\\x1b]0;x\\x07,two\\nlines,\\t=1,\\u009b2J\n");
}

TEST_CASE("any other cells come back") {
  const TempDir dir;
  std::mt19937 random(7);
  const std::vector<std::string> letters = {"a", "b", ",", "\"", " ", ";", "'", "\xC3\xA9", "-", "="};
  for (int trial = 0; trial < 300; ++trial) {
    const size_t columns = 1 + random() % 4;
    Rows rows(1 + random() % 6, std::vector<std::string>(columns));
    std::string text;
    for (auto& row : rows) {
      for (auto& cell : row)
        for (size_t n = random() % 6; n > 0; --n) cell += letters[random() % (cell.empty() ? letters.size() - 2 : letters.size())];
      text += csv_row(row);
    }
    write_file_atomic(dir / "a.csv", text);
    auto table = read_csv(dir / "a.csv");
    table.rows.insert(table.rows.begin(), table.columns);
    CAPTURE(text);
    CHECK((table.rows == rows));
  }
}

TEST_CASE("line ends, byte order mark and blank lines") {
  for (const char* text : {"a,b\n1,2\n3,4\n", "a,b\r\n1,2\r\n3,4\r\n", "a,b\r1,2\r3,4",
                           "\xEF\xBB\xBF"
                           "a,b\n\n1,2\n\r\n3,4\n\n"}) {
    const auto table = parse_csv(text, "t.csv");
    CHECK((table.columns == std::vector<std::string>{"a", "b"}));
    CHECK((table.rows == Rows{{"1", "2"}, {"3", "4"}}));
  }
  const auto table = parse_csv("a,\"b\"\n\n\"x\ny\r\nz\",2\n,\n", "t.csv");
  CHECK((table.rows == Rows{{"x\ny\r\nz", "2"}, {"", ""}}));
  CHECK((table.lines == std::vector<size_t>{3, 6}));
  CHECK(parse_csv("only,a,header", "t.csv").rows.empty());
  CHECK((parse_csv("a\nsize 5\" x\n", "t.csv").rows == Rows{{"size 5\" x"}}));
}

TEST_CASE("damaged files are refused with their line") {
  struct Row {
    std::string content;
    const char* part;
  };
  const std::vector<Row> rows = {
      {"", "t.csv: is empty"},
      {"\n\r\n", "is empty"},
      {"\xEF\xBB\xBF", "is empty"},
      {"a,b\n1,2\n3\n", "t.csv:3: 1 cells, but the header has 2"},
      {"a,b\n1,2\n\n3,4,5\n", "t.csv:4: 3 cells"},
      {"a,b\n\"x\n\ny\",1\n2\n", "t.csv:5: 1 cells"},
      {"a,b\n1,\"2\n3,4\n", "t.csv:2: an unterminated quote"},
      {"a,b\n1,\"2\"3\n", "t.csv:2: text after a closing quote"},
      {"a,b\n\"", "t.csv:2: an unterminated quote"},
      {std::string("a,b\0", 4), "NUL byte"},
      {std::string("\xFF\xFE"
                   "a\0,\0",
                   6),
       "UTF-16"},
  };
  for (const auto& row : rows) {
    const auto e = error_of([&] { parse_csv(row.content, "t.csv"); });
    CHECK(e.kind() == ErrorKind::Data);
    CAPTURE(e.what());
    CHECK(has(e.what(), row.part));
  }
  const TempDir dir;
  CHECK(error_of([&] { read_csv(dir / "absent.csv"); }).kind() == ErrorKind::Data);
  CHECK(error_of([&] { read_csv(dir.path()); }).kind() == ErrorKind::Data);
}

TEST_CASE("limits hold") {
  const TempDir dir;
  write_file_atomic(dir / "a.csv", "a,b\n1,2\n3,4\n");
  CHECK(read_csv(dir / "a.csv", {.bytes = 12, .cells = 6}).rows.size() == 2);
  CHECK(has(error_of([&] { read_csv(dir / "a.csv", {.bytes = 11}); }).what(), "12 bytes; allowed: at most 11"));
  CHECK(has(error_of([&] { read_csv(dir / "a.csv", {.cells = 5}); }).what(), "a.csv:3: more than 5 cells"));
  CHECK(has(error_of([&] { parse_csv(std::string(5'000'000, ','), "t.csv"); }).what(), "t.csv:1: more than 4,000,000 cells"));
}

TEST_CASE("columns as numbers") {
  const auto table =
      parse_csv("step,loss,note,loss\n1,2.5,a,1\n2,,b,1\n 3 , -1e-3 ,c,1\n+4,NaN,d,1\n5,-inf,e,1\n6,1e999,f,1\n7,-1e-999,g,1\n", "t.csv");
  CHECK((table.numbers("step") == std::vector<double>{1, 2, 3, 4, 5, 6, 7}));
  CHECK(table.has("note"));
  CHECK_FALSE(table.has("loss "));
  CHECK(has(error_of([&] { table.numbers("note"); }).what(), "t.csv:2: column 'note': 'a' is not a number"));
  CHECK(has(error_of([&] { table.numbers("loss"); }).what(), "more than one column 'loss'"));
  const auto missing = error_of([&] { table.numbers("notes"); });
  CHECK(missing.kind() == ErrorKind::Data);
  CHECK(has(missing.what(), "no column 'notes'; it has: step, loss, note, loss; hint: did you mean 'note'?"));

  const auto losses = parse_csv("loss\n2.5\n\" \"\nNaN\n-inf\n1e999\n-1e-999\nInfinity\n", "t.csv").numbers("loss");
  REQUIRE(losses.size() == 7);
  CHECK(losses[0] == 2.5);
  CHECK(std::isnan(losses[1]));
  CHECK(std::isnan(losses[2]));
  CHECK(losses[3] == -kInf);
  CHECK(losses[4] == kInf);
  CHECK(losses[5] == 0);
  CHECK(losses[6] == kInf);
  for (const char* bad : {"1,5", "0x10", "1e", "+-1", "1 2", "--1", "1\x1b[2J"}) {
    const auto e = error_of([&] { parse_csv("x\n" + csv_row({bad}), "t.csv").numbers("x"); });
    CHECK(e.kind() == ErrorKind::Data);
    CHECK_FALSE(has(e.what(), "\x1b"));
  }
  CHECK_FALSE(has(error_of([] { parse_csv("\x1b[2Ja\n", "t.csv").index("b"); }).what(), "\x1b"));
}
