#include "testing.hpp"

#include <algorithm>

#include "npu_train/tools/align/compare.hpp"
#include "tools/align/crafted_dump.hpp"
#include "tools/align/match_calls.hpp"
#include "tools/align/match_structure.hpp"

using namespace npu_train;
using npu_train::testing::CraftedDump;
using npu_train::testing::has;
using npu_train::testing::TempDir;

namespace {

struct Layer {
  std::string name, type, output, weight, gradient = "weight";
};

// Dumps the forward, the backward and the gradients of each layer.
std::filesystem::path dump_of(const std::filesystem::path& folder, const std::vector<Layer>& layers, double times = 1) {
  CraftedDump dump(folder);
  const auto tensor = [&](const std::string& shape, double max) { return CraftedDump::tensor(shape, max); };
  double value = 1;
  for (const auto& layer : layers) {
    dump.add_layer("Module." + layer.name + "." + layer.type + ".forward.0", tensor(layer.output, value * times), tensor("[8, 4]", value),
                   tensor(layer.weight, value));
    value += 1;
  }
  for (const auto& layer : layers) {
    dump.add_backward("Module." + layer.name + "." + layer.type + ".backward.0", tensor("[8, 4]", 1));
    dump.add_call("Module." + layer.name + "." + layer.type + ".parameters_grad.0",
                  "{\"" + layer.gradient + "\": [" + tensor(layer.weight, 2) + "]}");
  }
  return dump.write();
}

const std::vector<Layer> kOurs = {{"embed", "Linear", "[8, 4]", "[4, 4]"},
                                  {"blocks.0.fc", "Linear", "[8, 16]", "[16, 4]"},
                                  {"blocks.1.fc", "Linear", "[8, 16]", "[16, 4]"},
                                  {"head", "Linear", "[8, 2]", "[2, 4]"}};
const std::vector<Layer> kTheirs = {{"wte", "Dense", "[8, 4]", "[4, 4]"},
                                    {"h.0.c_fc", "Conv1D", "[8, 16]", "[4, 16]"},
                                    {"h.1.c_fc", "Conv1D", "[8, 16]", "[4, 16]"},
                                    {"lm_head", "Linear", "[8, 2]", "[2, 4]"}};

}  // namespace

TEST_CASE("match_structure: layers with other names and a transposed weight are paired in order, with their backward and gradients") {
  const TempDir dir;
  const auto result = compare_dumps(dump_of(dir / "a", kOurs), dump_of(dir / "b", kTheirs));
  CHECK(result.agrees);
  REQUIRE(result.steps.size() == 1);
  CHECK(result.steps[0].calls.size() == 12);
  CHECK(result.steps[0].one_sided == 0);
  CHECK(result.steps[0].not_compared == 0);
  for (const auto& call : result.steps[0].calls) {
    const auto place = std::find_if(kOurs.begin(), kOurs.end(), [&](const Layer& layer) { return layer.name == call.layer; });
    REQUIRE(place != kOurs.end());
    CHECK(call.layer_b == kTheirs[static_cast<size_t>(place - kOurs.begin())].name);
  }
  CHECK(has(result.steps[0].notes.at(0), "12 calls of layers with different names were paired by the sizes"));
  const auto fault = compare_dumps(dump_of(dir / "c", kOurs, 1.5), dump_of(dir / "d", kTheirs));
  CHECK_FALSE(fault.agrees);
  CHECK(fault.first.layer_b == "wte");
  CHECK(has(fault.first.sentence, "embed, which is wte in B, (Linear, forward, step 0)"));
}

TEST_CASE("match_structure: equal names alone, and a weight with other sizes") {
  const TempDir dir;
  const auto step = [](const std::filesystem::path& path) { return read_dump_step(Dump::open(path).places().at(0)); };
  const auto a = step(dump_of(dir / "a", kOurs)), b = step(dump_of(dir / "b", kTheirs));
  for (const auto& [i, j] : npu_train::detail::match_calls(a, b, {.fuzzy = false}).pairs) CHECK((i < 0 || j < 0));
  auto other = kTheirs;
  other[1].weight = "[4, 17]";
  const auto paired = npu_train::detail::match_calls(a, step(dump_of(dir / "c", other)), {}).layers;
  CHECK((paired == std::map<std::string, std::string>{{"blocks.1.fc", "h.1.c_fc"}, {"embed", "wte"}, {"head", "lm_head"}}));
}

TEST_CASE("longest_common: the positions of equal elements in order, nothing above the limit") {
  using npu_train::detail::longest_common;
  CHECK((longest_common({"a", "b", "c"}, {"b", "x", "c"}) == npu_train::detail::IndexPairs{{1, 0}, {2, 2}}));
  CHECK(longest_common({}, {"a"}).empty());
  const std::vector<std::string> many(3000, "a");
  CHECK(longest_common(many, many).empty());
}
