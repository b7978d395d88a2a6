#include "testing.hpp"

#include "npu_train/core/registry.hpp"

using namespace npu_train;
using npu_train::testing::error_of;

namespace {

struct NetOptions {
  int64_t width = 64;
  static const ConfigTable<NetOptions>& config_table() {
    static const auto table = ConfigTable<NetOptions>("net").field("width", &NetOptions::width, "channels", at_least(1));
    return table;
  }
};

Registry<std::string, int> make_registry() {
  Registry<std::string, int> registry("model");
  registry.add<NetOptions>("net", "a net",
                           [](const NetOptions& o, int depth) { return std::to_string(o.width) + "x" + std::to_string(depth); });
  registry.add<NoOptions>("plain", "nothing to choose", [](const NoOptions&, int) { return std::string("plain"); });
  return registry;
}

PartConfig part(const std::string& name, ConfigNode options = ConfigNode::map()) { return {name, std::move(options), {"x.yaml", 3, 8}}; }

}  // namespace

TEST_CASE("parts are made by name with options of their own") {
  const auto registry = make_registry();
  CHECK(registry.make(part("net"), "model", 3) == "64x3");
  CHECK(registry.make(part("net", ConfigNode{{"width", 8}}), "model", 3) == "8x3");
  CHECK(registry.names() == std::vector<std::string>{"net", "plain"});
  CHECK(registry.contains("net"));
  CHECK(registry.doc("plain") == "nothing to choose");
  CHECK(registry.describe("net")[0].default_text == "64");
}

TEST_CASE("unknown names and options are refused, with a list of the existing ones") {
  const auto registry = make_registry();
  const std::string unknown = error_of([&] { registry.make(part("nett"), "model", 1); }).what();
  CHECK(unknown.find("x.yaml:3:8") != std::string::npos);
  CHECK(unknown == "[x.yaml:3:8] no model has the name 'nett'; did you mean 'net'? There are: net, plain");
  const std::string other = error_of([&] { registry.make(part("zzz"), "model", 1); }).what();
  CHECK(other == "[x.yaml:3:8] no model has the name 'zzz'. There are: net, plain");
  const std::string second = error_of([&] { registry.make(part("plian"), "model", 1); }).what();
  CHECK(second == "[x.yaml:3:8] no model has the name 'plian'; did you mean 'plain'? There are: plain, net");
  const std::string empty = error_of([&] { Registry<std::string, int>("model").make(part("net"), "model", 1); }).what();
  CHECK(empty == "[x.yaml:3:8] no model has the name 'net'; this program has none");
  const std::string option = error_of([&] { registry.make(part("net", ConfigNode{{"widht", 8}}), "model", 1); }).what();
  CHECK(option.find("model.widht: no such key; did you mean 'width'?") != std::string::npos);
  const std::string none = error_of([&] { registry.make(part("plain", ConfigNode{{"a", 8}}), "model", 1); }).what();
  CHECK(none.find("no keys are allowed") != std::string::npos);
}

TEST_CASE("a user's part replaces a built-in one; resolving fills in defaults and collects errors") {
  auto registry = make_registry();
  registry.add<NoOptions>("net", "mine", [](const NoOptions&, int) { return std::string("mine"); });
  CHECK(registry.make(part("net"), "model", 3) == "mine");

  ConfigProblems problems;
  const auto resolved = make_registry().resolve(part("net"), "model", problems);
  CHECK(problems.empty());
  CHECK(resolved.options == ConfigNode{{"width", 64}});
  make_registry().resolve(part("net", ConfigNode{{"width", 0}}), "model", problems);
  make_registry().resolve(part("no"), "model", problems);
  CHECK(problems.all().size() == 2);
}
