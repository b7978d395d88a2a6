#include "testing.hpp"

#include "npu_train/core/config_node.hpp"

#include <fstream>
#include <limits>
#include <random>

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;
using npu_train::testing::TempDir;

namespace {

std::string message_of(const std::string& yaml) {
  const auto e = error_of([&] { parse_yaml(yaml, "x.yaml"); });
  CHECK(e.kind() == ErrorKind::Usage);
  return e.what();
}

}  // namespace

TEST_CASE("values keep their text and their place") {
  const auto node = parse_yaml("a: 010\nb:\n  - x\n  - 'null'\nc: {d: ~, e: null, f: 1.0e-4}\n", "x.yaml");
  CHECK(node.find("a")->scalar() == "010");
  CHECK(node.find("a")->mark().str() == "x.yaml:1:4");
  const auto& items = node.find("b")->items();
  REQUIRE(items.size() == 2);
  CHECK(items[0].mark().str() == "x.yaml:3:5");
  CHECK_FALSE(items[0].quoted());
  CHECK(items[1].quoted());
  CHECK(items[1].scalar() == "null");
  CHECK(node.find("c")->find("d")->is_null());
  CHECK(node.find("c")->find("e")->is_null());
  CHECK(node.members()[2].key_mark.str() == "x.yaml:5:1");
  CHECK(node.find("z") == nullptr);
  CHECK(parse_yaml("", "x").is_null());
  CHECK(parse_yaml("# only a comment\n", "x").is_null());
}

TEST_CASE("what is no single YAML document is refused with its place") {
  struct Row {
    const char* yaml;
    const char* place;
    const char* part;
  };
  const std::vector<Row> rows = {
      {"a: [1, 2\nb: 3\n", "x.yaml:", "invalid YAML"},
      {"a: 1\n\tb: 2\n", "x.yaml:2", ""},
      {"a: 1\nb: 2\na: 3\n", "x.yaml:3:1", "in line 1 and in line 3"},
      {"t:\n  a: 1\n  'a': 3\n", "x.yaml:3:3", "twice"},
      {"a: 1\n---\nb: 2\n", "x.yaml", "more than one document"},
      {"? [1, 2]\n: 3\n", "x.yaml:1", "cannot be a key"},
      {"~: 3\n", "x.yaml:1", "key is missing or null"},
      {"a: &x {b: *x}\n", "x.yaml:1", "alias"},
      {"a: *nowhere\n", "x.yaml:1", "invalid YAML"},
      {"a: !!python/object 3\n", "x.yaml:1", "tag"},
      {"b: &b {x: 1}\na:\n  <<: *b\n", "x.yaml:3:3", "merge keys"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.yaml);
    const auto message = message_of(row.yaml);
    CHECK(has(message, row.place));
    CHECK(has(message, row.part));
  }
  CHECK(has(message_of(std::string("a: b\0c", 6)), "zero"));
}

TEST_CASE("aliases that multiply, depth and size are bounded") {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const auto before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) bomb += (k > 0 ? ", " : "") + before;
    bomb += "]\n";
  }
  CHECK(has(message_of(bomb), "100,000"));
  // An alias that repeats few nodes with much text.
  std::string text = "a: &a " + std::string(1'000'000, 'x') + "\nb: [";
  for (int k = 0; k < 1000; ++k) text += k > 0 ? ", *a" : "*a";
  CHECK(has(message_of(text + "]\n"), "16 MiB"));
  CHECK(has(message_of(std::string(70, '[') + std::string(70, ']')), "64 levels"));
  CHECK(has(message_of(std::string(100'000, '[')), "x.yaml"));
  CHECK_NOTHROW(parse_yaml(std::string(60, '[') + std::string(60, ']'), "x"));
  // A valid alias has the value of its anchor.
  const auto node = parse_yaml("a: &a {x: 1}\nb: *a\n", "x");
  CHECK(*node.find("a") == *node.find("b"));
}

TEST_CASE("files: missing, a folder, too large") {
  const TempDir dir;
  CHECK(has(error_of([] { load_yaml("no/such.yaml"); }).what(), "no such file"));
  CHECK(has(error_of([&] { load_yaml(dir.path().string()); }).what(), "folder"));
  std::ofstream(dir / "big.yaml") << "a: " << std::string(5 << 20, 'x');
  CHECK(has(error_of([&] { load_yaml((dir / "big.yaml").string()); }).what(), "4 MiB"));
  std::ofstream(dir / "good.yaml") << "a: 1\n";
  CHECK(load_yaml((dir / "good.yaml").string()).find("a")->scalar() == "1");
}

TEST_CASE("overrides reach into maps and lists") {
  auto root = parse_yaml("trainer: {max_epochs: 5}\nlist: [{n: 1}, {n: 2}]\nmodel: resnet50\nempty:\n", "x.yaml");
  apply_override(root, "trainer.max_epochs=3");
  apply_override(root, "trainer.new.deep=[1, 2]");
  apply_override(root, "list.1.n=7");
  apply_override(root, "optimizer={name: adamw, lr: 1e-3}");
  apply_override(root, "empty.x=a=b");
  apply_override(root, "nothing=");
  CHECK(root.find("trainer")->find("max_epochs")->scalar() == "3");
  CHECK(root.find("trainer")->find("max_epochs")->mark().str() == "command line");
  CHECK(root.find("trainer")->find("new")->find("deep")->items().size() == 2);
  CHECK(root.find("list")->items()[1].find("n")->scalar() == "7");
  CHECK(root.find("optimizer")->find("lr")->scalar() == "1e-3");
  CHECK(root.find("empty")->find("x")->scalar() == "a=b");
  CHECK(root.find("nothing")->is_null());
  for (const char* bad : {"trainer", "=3", "model.name=x", "list.2.n=1", "list.x=1", "a..b=1", "a.=1", "a=[1", ".=1", "a={b: 1, b: 2}"}) {
    CAPTURE(bad);
    const auto e = error_of([&] { apply_override(root, bad); });
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK(has(e.what(), "[command line]"));
  }
  auto deep = ConfigNode::map();
  std::string path = "a";
  for (int i = 0; i < 100; ++i) path += ".a";
  CHECK_THROWS_AS(deep.set(path, 1), Error);
}

TEST_CASE("YAML text reads back as an equal node") {
  const std::vector<ConfigNode> nodes = {
      ConfigNode{},
      ConfigNode::map(),
      ConfigNode::list({}),
      ConfigNode{{"lr", 0.1}, {"n", 3}, {"flag", true}, {"name", "sgd"}, {"none", ConfigNode()}},
      ConfigNode{{"texts", ConfigNode::list({"1",    "true", "null", "",     "~",   "yes", "0x10", "1e3",    " a ",
                                             "a: b", "a #b", "- a",  "#",    "'",   "\"",  "\\",   "a\nb",   "tab\there",
                                             "\x01", "é",    "-",    "?",    ":",   "*a",  "&a",   "!x",     "%y",
                                             "@z",   "`",    "{",    "[x]",  "a,b", "|",   ">",    "cuda:0", "data/cifar-10",
                                             "../x", "./y",  "/z",   ".inf", "=",   "<<",  "---",  "..."})}},
      ConfigNode{{"a b", 1}, {"null", 2}, {"true", 3}, {"1", 4}, {"a: b", 5}, {"x.y", 6}, {"", 7}},
      ConfigNode{{"deep", ConfigNode{{"list", ConfigNode::list({ConfigNode{{"name", "x"}, {"p", 0.5}},
                                                                ConfigNode::list({1, 2, ConfigNode::list({})}), ConfigNode::map(),
                                                                ConfigNode{{"in", ConfigNode{{"a", 1}}}}})},
                                     {"m", ConfigNode{{"k", ConfigNode{{"j", 1}}}}}}}},
      ConfigNode{{"big", std::numeric_limits<double>::infinity()}, {"small", -1e-300}},
      ConfigNode{{"long", ConfigNode::list(std::vector<ConfigNode>(100, "abcdef"))}},
      ConfigNode::list({ConfigNode{{"a", ConfigNode{{"b", 1}}}}, 2}),
      ConfigNode("plain"),
      ConfigNode("12"),
      ConfigNode(12)};
  for (const auto& node : nodes) {
    const auto text = to_yaml(node);
    CAPTURE(text);
    CHECK(parse_yaml(text, "x") == node);
    CHECK(parse_yaml(to_yaml_line(node), "x") == node);
    CHECK(to_yaml(parse_yaml(text, "x")) == text);
  }
  CHECK(to_yaml(nodes[3]) == "lr: 0.1\nn: 3\nflag: true\nname: sgd\nnone: null\n");
  CHECK(to_yaml(ConfigNode{{"optimizer", nodes[3]}}) == "optimizer: {lr: 0.1, n: 3, flag: true, name: sgd, none: null}\n");
}

TEST_CASE("YAML and JSON text contain no terminal controls") {
  const std::string given =
      "a\x1b[2J\r\x07\xc2\x9b"  // with a control character beyond ASCII, a direction mark, and a byte that is not UTF-8
      "31m\xe2\x80\xae\xff\xc3\xa9";
  const ConfigNode node{{"dir", given}, {given, 1}};
  const std::string escaped = R"("a\u001b[2J\u000d\u0007\u009b31m\u202e\ufffd)"
                              "\xc3\xa9\"";
  CHECK(to_yaml(node) == "dir: " + escaped + "\n" + escaped + ": 1\n");
  CHECK(to_json(node) == "{\"dir\": " + escaped + ", " + escaped + ": 1}");
  const auto read =
      "a\x1b[2J\r\x07\xc2\x9b"
      "31m\xe2\x80\xae\xef\xbf\xbd\xc3\xa9";
  CHECK((parse_yaml(to_yaml(node), "x") == ConfigNode{{"dir", read}, {read, 1}}));
  std::string accents;
  for (int i = 0; i < 1000; ++i) accents += "\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82";
  CHECK((parse_yaml(to_yaml({{"a", accents}}), "x") == ConfigNode{{"a", accents}}));
}

TEST_CASE("a text and a number that look the same are not equal") {
  CHECK_FALSE(ConfigNode("1") == ConfigNode(1));
  CHECK(ConfigNode("sgd") == parse_yaml("sgd", "x"));
  CHECK_FALSE(ConfigNode(1) == ConfigNode());
}

TEST_CASE("JSON text") {
  CHECK(to_json(parse_yaml("{a: 1, b: 010, c: .5, d: 1e-05, e: inf, f: 'x\"y', g: [true, null, text], h: {}, i: '1'}", "x")) ==
        R"({"a": 1, "b": 10, "c": 0.5, "d": 1e-05, "e": "inf", "f": "x\"y", "g": [true, null, "text"], "h": {}, "i": "1"})");
}

TEST_CASE("damaged YAML gives an Error or a node, nothing else") {
  const std::string good =
      "seed: 42\nmodel: &m {name: resnet50, num_classes: 10}\nlist:\n  - 'a'\n  - \"b\\n\"\nother: *m\ntext: |\n  lines\n  more\n? key\n: "
      "value\n";
  std::mt19937 random(5);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    auto text = good;
    for (int k = 0; k < 1 + i % 4; ++k) {
      const auto at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 5);
          break;
        default:
          text.insert(at, 1, "{}[]:,-?&*!|>'\"%@`#\n\t "[random() % 23]);
          break;
      }
    }
    try {
      parse_yaml(text, "x");
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(refused > 300);
}

TEST_CASE("a tab in the indentation is named") {
  const auto said = [](const char* text) { return std::string(error_of([&] { parse_yaml(text, "a.yaml"); }).what()); };
  CHECK(has(said("trainer:\n\tmax_epochs: 3\n"), "hint: line 2 is indented with a tab"));
  CHECK(has(said("trainer:\n  max_epochs: 3\n  \tthreads: 1\n\tseed: 1\n"), "indented with a tab"));
  CHECK_FALSE(has(said("a: [1\n"), "tab"));
  CHECK(parse_yaml("a:\t3\n", "a.yaml").find("a")->scalar() == "3");
}
