#include "testing.hpp"

#include "npu_train/core/config_table.hpp"

#include <cmath>
#include <functional>

using namespace npu_train;
using npu_train::testing::error_of;

namespace {

struct Inner {
  int64_t max_epochs = 90;
  double clip = 0;
  bool flag = false;
  std::vector<int64_t> steps = {30, 60};
  static const ConfigTable<Inner>& config_table() {
    static const auto table = ConfigTable<Inner>("trainer")
                                  .field("max_epochs", &Inner::max_epochs, "epochs", at_least(1))
                                  .field("clip", &Inner::clip, "norm", between(0, 10))
                                  .field("flag", &Inner::flag, "a switch")
                                  .field("steps", &Inner::steps, "milestones", at_least(0))
                                  .synonym("epochs", "max_epochs");
    return table;
  }
};

struct Outer {
  int seed = 42;
  double lr = 0.1;
  double limit = std::numeric_limits<double>::infinity();
  std::string precision = "auto";
  std::string path;
  std::vector<std::string> names;
  std::vector<double> betas = {0.9, 0.999};
  Inner trainer;
  PartConfig optimizer{"sgd", ConfigNode{{"lr", 0.1}, {"momentum", 0.9}}, {}};
  PartConfig ema;
  std::vector<PartConfig> transforms;
  std::vector<Inner> stages;
  static const ConfigTable<Outer>& config_table() {
    static const auto table =
        ConfigTable<Outer>("run")
            .field("seed", &Outer::seed, "seed")
            .field("lr", &Outer::lr, "rate", more_than(0))
            .field("limit", &Outer::limit, "limit")
            .field("precision", &Outer::precision, "mode", one_of({"auto", "32-true", "16-mixed"}, {{"FP32", "32-true"}}))
            .field("path", &Outer::path, "where")
            .field("names", &Outer::names, "names")
            .field("betas", &Outer::betas, "betas", between(0, 1))
            .field("trainer", &Outer::trainer, "the loop")
            .field("optimizer", &Outer::optimizer, "optimizer")
            .field("ema", &Outer::ema, "average")
            .field("transforms", &Outer::transforms, "steps")
            .field("stages", &Outer::stages, "loops");
    return table;
  }
};

Outer read(const std::string& yaml) { return bind<Outer>(parse_yaml(yaml, "x.yaml")); }

}  // namespace

TEST_CASE("defaults, values and sections") {
  const auto a = read("");
  CHECK(a.seed == 42);
  CHECK(a.trainer.max_epochs == 90);
  const auto b = read(
      "seed: -7\nlr: 1.0e-4\nlimit: 3\npath: 007\nnames: [a, '1', 2]\nbetas: [.5, 1]\ntrainer: {max_epochs: 010, flag: true, steps: []}\n");
  CHECK(b.seed == -7);
  CHECK(b.lr == 1e-4);
  CHECK(b.path == "007");
  CHECK(b.names == std::vector<std::string>{"a", "1", "2"});
  CHECK(b.betas == std::vector<double>{0.5, 1});
  CHECK(b.trainer.max_epochs == 10);  // decimal, in spite of leading zeros
  CHECK(b.trainer.flag);
  CHECK(b.trainer.steps.empty());
  CHECK(b.trainer.clip == 0);
  CHECK(read("trainer:\n").trainer.max_epochs == 90);
  CHECK(std::isinf(read("limit: .inf").limit));
}

TEST_CASE("every error message names place, key, given and allowed") {
  struct Row {
    const char* yaml;
    const char* message;
  };
  const std::vector<Row> rows = {
      {"trainer:\n  max_epoch: 3\n",
       "x.yaml:2:3: trainer.max_epoch: no such key; did you mean 'max_epochs'? Allowed: max_epochs, clip, flag, steps"},
      {"trainer: {epochs: 3}", "x.yaml:1:11: trainer.epochs: no such key; the name here is max_epochs"},
      {"trainer: {falg: true}", "trainer.falg: no such key; did you mean 'flag'? Allowed: flag, max_epochs, clip, steps"},
      {"trainer: {num_epochs: 3}", "trainer.num_epochs: no such key; the name here is max_epochs"},
      {"trainer: {learning-rate: 3}", "trainer.learning-rate: no such key; the key is optimizer.lr"},
      {"zzz: 1", "x.yaml:1:1: zzz: no such key; allowed: seed, lr, limit"},
      {"trainer: {max_epochs: abc}", "x.yaml:1:23: trainer.max_epochs: 'abc' is not an integer; allowed: at least 1"},
      {"trainer: {max_epochs: 0}", "trainer.max_epochs: '0' is out of range; allowed: at least 1"},
      {"trainer: {max_epochs: 1e3}", "'1e3' is not an integer; allowed: at least 1; hint: write 1000"},
      {"trainer: {max_epochs: 1_000}", "hint: write 1000"},
      {"trainer: {max_epochs: 2.0}", "hint: write 2"},
      {"trainer: {max_epochs: 2.5}", "'2.5' is not an integer"},
      {"trainer: {max_epochs: '3'}", "hint: leave out the quotes"},
      {"trainer: {max_epochs: 0x10}", "hint: integers are decimal"},
      {"trainer: {max_epochs: 99999999999999999999}", "is not an integer"},
      {"trainer: {max_epochs: [3]}", "a list of 1 is not an integer"},
      {"trainer: {max_epochs: }", "nothing (null) is not an integer"},
      {"seed: 3000000000", "is out of range; allowed: between -2,147,483,648 and 2,147,483,647"},
      {"lr: fast", "lr: 'fast' is not a number; allowed: more than 0"},
      {"lr: 0", "lr: '0' is out of range; allowed: more than 0"},
      {"lr: nan", "lr: 'nan' is out of range"},
      {"lr: '0.1'", "hint: leave out the quotes"},
      {"lr: 1e999", "is not a number"},
      {"lr: 1.2.3", "is not a number"},
      {"trainer: {clip: inf}", "allowed: between 0 and 10"},
      {"trainer: {flag: yes}", "'yes' is not true or false; hint: write true"},
      {"trainer: {flag: Off}", "hint: write false"},
      {"trainer: {flag: 'true'}", "hint: leave out the quotes"},
      {"trainer: {steps: 3}", "trainer.steps: '3' is not a list; hint: write [3]"},
      {"trainer: {steps: [1, -2]}", "x.yaml:1:22: trainer.steps.1: '-2' is out of range; allowed: at least 0"},
      {"trainer: 3", "x.yaml:1:10: trainer: '3' is not a map of keys and values"},
      {"precision: 16-mixd", "precision: '16-mixd' is not known, did you mean '16-mixed'?; allowed: one of: auto, 32-true, 16-mixed"},
      {"precision: fp32", "precision: 'fp32' is not known; the name here is 32-true; allowed: one of: auto, 32-true, 16-mixed"},
      {"path: null", "hint: write \"\" for an empty text"},
      {"path: {a: 1}", "a map is not text"},
      {"ema: {decay: 0.9}", "x.yaml:1:6: ema: the key 'name' is missing"},
      {"ema: [1]", "ema: a list of 1 is neither a name"},
      {"ema: {name: [x]}", "ema.name: a list of 1 is not text"},
      {"transforms: [{p: 1}]", "transforms.0: the key 'name' is missing"},
      {"[1, 2]", "x.yaml:1:1: a list of 2 is not a map of keys and values"},
      {"just text", "'just text' is not a map of keys and values"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.yaml);
    const auto e = error_of([&] { read(row.yaml); });
    CHECK(e.kind() == ErrorKind::Usage);
    CAPTURE(e.what());
    CHECK(std::string(e.what()).find(row.message) != std::string::npos);
    CHECK(std::string(e.what()).find('\n') == std::string::npos);
  }
}

TEST_CASE("the hint for an empty text on a command line can be pasted into a shell") {
  auto node = ConfigNode::map();
  apply_override(node, "path=");  // as a shell passes path=""
  const auto e = error_of([&] { bind<Outer>(node, ""); });
  CHECK(std::string(e.what()).find("hint: in a shell, an empty text is 'path=\"\"'") != std::string::npos);
  apply_override(node, "path=\"\"");
  CHECK(bind<Outer>(node, "").path.empty());
}

TEST_CASE("all errors are reported together, one per line") {
  const auto e = error_of([] { read("lr: -1\nsed: 3\ntrainer: {flag: 7}\n"); });
  CHECK(std::string(e.what()) ==
        "[config] 3 errors\n  x.yaml:1:5: lr: '-1' is out of range; allowed: more than 0\n  x.yaml:2:1: sed: no such key; did you mean "
        "'seed'? "
        "Allowed: seed, lr, limit, precision, path, names, betas, trainer, optimizer, ema, transforms, stages\n  x.yaml:3:17: "
        "trainer.flag: '7' "
        "is not "
        "true or false");
}

TEST_CASE("a failed list leaves the value alone") {
  Outer object;
  ConfigProblems problems;
  bind_into(object, parse_yaml("betas: [0.5, x]", "x"), "", problems);
  CHECK(problems.all().size() == 1);
  CHECK(object.betas == std::vector<double>{0.9, 0.999});
}

TEST_CASE("parts: a name, a map, options over the defaults of the same part") {
  CHECK(read("").optimizer.name == "sgd");
  CHECK(read("").ema.name.empty());
  CHECK(read("optimizer: adamw").optimizer.name == "adamw");
  const auto same = read("optimizer: {lr: 0.5}").optimizer;
  CHECK(same.name == "sgd");
  CHECK(same.options == ConfigNode{{"lr", parse_yaml("0.5", "x")}, {"momentum", 0.9}});
  const auto other = read("optimizer: {name: adamw, lr: 0.5}").optimizer;
  CHECK(other.options == ConfigNode{{"lr", 0.5}});
  CHECK(read("optimizer: null").optimizer.name.empty());
  const auto list = read("transforms: [flip, {name: crop, size: 32}]").transforms;
  REQUIRE(list.size() == 2);
  CHECK(list[1].options.find("size")->scalar() == "32");
}

TEST_CASE("what is printed reads back the same") {
  auto object = read(
      "path: 'true'\nnames: ['1', 'a: b', '']\nema: {name: x, decay: 0.99, deep: {a: [1, 2]}}\ntransforms: [flip, {name: crop, size: "
      "32}]\nlr: 3.3e-7\n");
  const auto text = to_yaml(to_node(object));
  CAPTURE(text);
  const auto again = bind<Outer>(parse_yaml(text, "printed"));
  CHECK(to_yaml(to_node(again)) == text);
  CHECK(again.path == "true");
  CHECK(again.names == object.names);
  CHECK(again.lr == object.lr);
  CHECK(std::isinf(again.limit));
  CHECK(again.ema.options == object.ema.options);
  CHECK(to_node(again) == to_node(object));
}

TEST_CASE("a struct that was filled in code has the problems of its text, and its sound values are kept") {
  const std::function<void(Outer&)> changes[] = {
      [](Outer&) {},
      [](Outer& o) { o.lr = -1; },
      [](Outer& o) { o.lr = std::nan(""); },
      [](Outer& o) { o.lr = std::numeric_limits<double>::infinity(); },
      [](Outer& o) { o.limit = 3; },
      [](Outer& o) { o.seed = 7; },
      [](Outer& o) { o.precision = "bf61"; },
      [](Outer& o) {
        o.betas = {0.5, -1, 2};
      },
      [](Outer& o) {
        o.names = {"", "1"};
      },
      [](Outer& o) {
        o.trainer.steps = {30, -1};
      },
      [](Outer& o) { o.optimizer.name.clear(); },
      [](Outer& o) {
        o.transforms = {{"flip"}, {"crop", {{"size", 32}}}};
      },
      [](Outer& o) {
        o.stages = {{.max_epochs = 3}, {.clip = 11}, {.steps = {-1}}};
      },
      [](Outer& o) {
        o.stages = {{.max_epochs = 3}, {.clip = 2}};
      },
      [](Outer& o) {
        o.lr = 0;
        o.precision = "";
        o.trainer.max_epochs = 0;
      },
  };
  const auto text = [](const ConfigProblems& problems) {
    std::string out;
    for (const auto& p : problems.all()) out += p.mark.str() + " " + p.path + ": " + p.message + "\n";
    return out;
  };
  int refused = 0;
  for (const auto& change : changes) {
    Outer given;
    change(given);
    Outer by_text, in_code;
    ConfigProblems of_text, of_code;
    bind_into(by_text, to_node(given), "run", of_text);
    bind_into(in_code, given, "run", of_code);
    CAPTURE(text(of_text));
    CHECK(text(of_code) == text(of_text));
    CHECK(to_node(in_code) == to_node(by_text));
    if (of_text.empty()) {
      CHECK_NOTHROW(check_limits(given, "run"));
      continue;
    }
    ++refused;
    CHECK(std::string(error_of([&] { check_limits(given, "run"); }).what()) ==
          error_of([&] { bind<Outer>(to_node(given), "run"); }).what());
  }
  CHECK(refused >= 7);
}

TEST_CASE("the table describes itself") {
  const auto fields = Outer::config_table().describe();
  CHECK(fields[1].name == "lr");
  CHECK(fields[1].type == "number");
  CHECK(fields[1].allowed == "more than 0");
  CHECK(fields[1].default_text == "0.1");
  CHECK(fields[7].type == "section");
  CHECK(fields[7].children[3].default_text == "[30, 60]");
  CHECK(fields[8].default_text == "{name: sgd, lr: 0.1, momentum: 0.9}");
  CHECK(fields[9].default_text == "null");
  CHECK(fields[10].type == "list of parts");
  CHECK(any_value().str().empty());
  CHECK(Bounds{.lo = 0, .hi = 1, .lo_open = true}.str() == "more than 0 and at most 1");
  CHECK(Bounds{.hi = 1}.str() == "at most 1");
}

TEST_CASE("a number with a bound is finite") {
  const auto e = error_of([] { read("lr: .inf"); });
  CHECK(e.kind() == ErrorKind::Usage);
  CHECK(std::string(e.what()).find("it must be finite") != std::string::npos);
  CHECK(std::isinf(read("limit: .inf").limit));
}
