#include "testing.hpp"

#include "npu_train/tools/align/config_diff.hpp"

using namespace npu_train;
using npu_train::testing::has;

namespace {

std::vector<ConfigDifference> differences(const std::string& a, const std::string& b) {
  return compare_configs(parse_yaml(a, "a.yaml"), parse_yaml(b, "b.yaml"));
}

// Returns "path: a | b" for each difference. Differences without effect on numbers are in brackets.
std::vector<std::string> shown_differences(const std::string& a, const std::string& b) {
  std::vector<std::string> out;
  for (const auto& d : differences(a, b)) {
    const auto text = d.path + ": " + d.a + " | " + d.b;
    out.push_back(d.numeric ? text : "[" + text + "]");
  }
  return out;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("config_diff: what is written in another way is the same") {
  CHECK((shown_differences("{lr: 0.1, wd: 1.0e-4, n: 3, on: true, name: 'sgd'}", "{name: sgd, on: True, n: 3.0, wd: 0.0001, lr: 1e-1}") ==
         Lines{}));
  CHECK((shown_differences("betas: [0.9, 0.999]", "betas: [0.90, 9.99e-1]") == Lines{}));
  CHECK((shown_differences("x: .inf\ny: .nan", "x: .inf\ny: .nan") == Lines{}));
  CHECK((shown_differences("optimizer: sgd", "optimizer: {name: sgd}") == Lines{}));
  CHECK((shown_differences("", "{}") == Lines{}));
}

TEST_CASE("config_diff: differences have their path and both values") {
  CHECK((shown_differences("{optimizer: {name: sgd, lr: 0.1}, seed: 1}", "{optimizer: {name: adamw, lr: 0.1, eps: 1e-8}, seed: 2}") ==
         Lines{"optimizer.name: sgd | adamw", "optimizer.eps: (not given) | 1e-8", "seed: 1 | 2"}));
  CHECK((shown_differences("optimizer: sgd", "optimizer: {name: sgd, lr: 0.1}") == Lines{"optimizer.lr: (not given) | 0.1"}));
  CHECK((shown_differences("ema: {decay: 0.9, on: true}", "{}") == Lines{"ema.decay: 0.9 | (not given)", "ema.on: true | (not given)"}));
  CHECK((shown_differences("a: {b: {}}", "a: {b: 3}") == Lines{"a.b: {} | 3"}));
  CHECK((shown_differences("a: null", "{}") == Lines{"a: null | (not given)"}));
  // these seeds are equal as doubles
  CHECK((shown_differences("seed: 9007199254740993", "seed: 9007199254740992") == Lines{"seed: 9007199254740993 | 9007199254740992"}));
}

TEST_CASE("config_diff: lists of sections are compared item by item, others as one value") {
  CHECK((shown_differences("betas: [0.9, 0.999]", "betas: [0.9, 0.99]") == Lines{"betas: [0.9, 0.999] | [0.9, 0.99]"}));
  CHECK(
      (shown_differences("t: [{name: crop, size: 32}, flip]", "t: [{name: crop, size: 28}, {name: flip}]") == Lines{"t.0.size: 32 | 28"}));
  const auto other_length = shown_differences("t: [{name: crop}]", "t: [{name: crop}, {name: flip}]");
  REQUIRE(other_length.size() == 1);
  CHECK(has(other_length[0], "t: "));
}

TEST_CASE("config_diff: values that the data decide are reported, and change no number") {
  CHECK((shown_differences("n: (left to the data)", "n: 10") == Lines{"[n: (left to the data) | 10]"}));
  CHECK((shown_differences("n: 10", "n: (left to the data)") == Lines{"[n: 10 | (left to the data)]"}));
  CHECK((shown_differences("n: (left to the data)", "n: (left to the data)") == Lines{}));
}

TEST_CASE("config_diff: settings that no number depends on are distinguished") {
  CHECK((shown_differences("{output: {dir: a}, data: {num_workers: 1, root: x}, trainer: {log_every_n_steps: 1, max_epochs: 2}}",
                           "{output: {dir: b}, data: {num_workers: 4, root: y}, trainer: {log_every_n_steps: 9, max_epochs: 3}}") ==
         Lines{"[output.dir: a | b]", "[data.num_workers: 1 | 4]", "data.root: x | y", "[trainer.log_every_n_steps: 1 | 9]",
               "trainer.max_epochs: 2 | 3"}));
  CHECK(changes_numbers("checkpoints.x"));
  CHECK_FALSE(changes_numbers("checkpoint.save_top_k"));
  CHECK_FALSE(changes_numbers("dump"));
  CHECK(changes_numbers("precision"));
}

TEST_CASE("config_diff: environments differ by name, in the order of the names") {
  CHECK(compare_environments({{"a", "1"}}, {{"a", "1"}}).empty());
  const auto differences = compare_environments({{"a", "1"}, {"b", "1"}, {"c", "1"}}, {{"b", "2"}, {"c", "1"}, {"d", "3"}});
  REQUIRE(differences.size() == 3);
  CHECK((differences[0].path == "a" && differences[0].a == "1" && differences[0].b == kNotGiven && differences[0].numeric));
  CHECK((differences[1].path == "b" && differences[1].a == "1" && differences[1].b == "2"));
  CHECK((differences[2].path == "d" && differences[2].a == kNotGiven && differences[2].b == "3"));
}
