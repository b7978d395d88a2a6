#include "testing.hpp"

#include "tools/align/crafted_dump.hpp"
#include "tools/align/match_calls.hpp"

using namespace npu_train;
using npu_train::testing::CraftedDump;
using npu_train::testing::has;
using npu_train::testing::TempDir;

namespace {

DumpStep step_with(const std::filesystem::path& folder, const std::vector<std::pair<std::string, std::string>>& layers_and_shapes) {
  CraftedDump dump(folder);
  for (const auto& [layer, shape] : layers_and_shapes)
    dump.add("Module." + layer + ".Linear.forward.0", shape.empty() ? "" : CraftedDump::tensor(shape));
  return read_dump_step(Dump::open(dump.write()).places().at(0));
}

}  // namespace

TEST_CASE("match_calls: class and order pair calls with matching shapes, and this is reported") {
  const TempDir dir;
  const auto a = step_with(dir / "a", {{"one", "[2, 3]"}, {"two", "[2, 4]"}, {"three", "[2, 5]"}});
  const auto b = step_with(dir / "b", {{"x", "[2, 3]"}, {"y", "[4, 2]"}, {"z", ""}});
  const auto match = npu_train::detail::match_calls(a, b, {});
  CHECK((match.pairs == npu_train::detail::CallPairs{{0, 0}, {-1, 1}, {1, -1}, {2, 2}}));  // z has no known shape
  REQUIRE(match.notes.size() == 1);
  CHECK(
      has(match.notes[0], "2 calls were paired only by class and order, as in Module.one.Linear.forward.0 with Module.x.Linear.forward.0"));
  CHECK(npu_train::detail::match_calls(a, b, {.fuzzy = false}).notes.empty());
  CHECK(npu_train::detail::match_calls(a, a, {}).notes.empty());
}

TEST_CASE("match_calls: a mapping pairs calls with any shapes, and unknown names are reported") {
  const TempDir dir;
  const auto a = step_with(dir / "a", {{"one", "[2, 3]"}}), b = step_with(dir / "b", {{"x", "[4]"}});
  const auto match =
      npu_train::detail::match_calls(a, b, {.mapping = {{"one", "x"}, {"oen", "x"}, {"Module.one.Linear.forward.0", "why"}}});
  CHECK((match.pairs == npu_train::detail::CallPairs{{-1, 0}, {0, -1}}));  // the call's own name has priority over its layer's
  CHECK((match.unknown == std::set<std::string>{"oen, which does not exist in A", "why, which does not exist in B"}));
  CHECK((npu_train::detail::match_calls(a, b, {.mapping = {{"one", "x"}}}).pairs == npu_train::detail::CallPairs{{0, 0}}));
}

TEST_CASE("match_calls: operators that the sides call another number of times go by their shapes, in order") {
  const TempDir dir;
  const auto step = [&](const char* name, const std::vector<std::string>& shapes) {
    CraftedDump dump(dir / name);
    for (size_t i = 0; i < shapes.size(); ++i)
      dump.add("Tensor.add_." + std::to_string(i) + ".forward", CraftedDump::tensor(shapes[i]), CraftedDump::tensor(shapes[i]));
    return read_dump_step(Dump::open(dump.write()).places().at(0));
  };
  const auto a = step("a", {"[]", "[]", "[]"}), b = step("b", {"[]", "[]", "[8, 4]", "[]", "[8, 4]"});
  CHECK((npu_train::detail::match_calls(a, b, {}).pairs == npu_train::detail::CallPairs{{0, 0}, {1, 1}, {-1, 2}, {2, 3}, {-1, 4}}));
  const auto other = step("c", {"[]", "[]", "[2]"});  // the numbers of calls are equal, so the other shape is a difference
  CHECK((npu_train::detail::match_calls(a, other, {}).pairs == npu_train::detail::CallPairs{{0, 0}, {1, 1}, {2, 2}}));
}
