#include "testing.hpp"

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "npu_train/core/error.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/tools/align/rank_comparison.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

Json spread(int64_t count, double mean, double variance) {
  return Json::object({{"count", count}, {"mean", mean}, {"variance", variance}});
}

// Records of ranks, written by hand: two parameters, and one micro-batch of four samples in each step.
struct RankDumps {
  TempDir dir;
  int ranks;

  explicit RankDumps(int count, int steps) : ranks(count) {
    for (int step = 0; step < steps; ++step)
      for (int rank = 0; rank < count; ++rank) write(step, rank, healthy(step, rank));
  }

  Json healthy(int step, int rank) const {
    const int first = 4 * (step * ranks + rank);
    auto ids = Json::array(), contents = Json::array(), parameters = Json::array();
    for (int i = 0; i < 4; ++i) {
      ids.push_back(first + i);
      contents.push_back("c" + std::to_string(first + i));
    }
    for (const char* name : {"body.weight", "head.bias"}) {
      const auto digest = [&](const char* what, int at) { return std::string(what) + name + std::to_string(at); };
      parameters.push_back(Json::object({{"name", name},
                                         {"numel", 16},
                                         {"dtype", "Float"},
                                         {"passes", 1},
                                         {"local_square", 4.0 + 0.1 * rank},
                                         {"local_sum", 1.0 + rank},
                                         {"reduced_norm", 3.0},
                                         {"reduced_sum", 0.5 * ranks * (ranks + 1)},
                                         {"before", digest("weight", step)},
                                         {"reduced", digest("gradient", step)},
                                         {"clipped", digest("clipped", step)},
                                         {"after", digest("weight", step + 1)}}));
    }
    const auto batch = Json::object({{"ids", ids},
                                     {"contents", contents},
                                     {"means", spread(4, 0.01 * ((step * 7 + rank * 3) % 5), 0.04)},
                                     {"deviations", spread(4, 1, 0.01)},
                                     {"loss", 2 + 0.1 * ((step * 5 + rank * 3) % 7)}});
    const auto sums = Json::array({Json(double(ranks)), Json(0.5 * ranks * (ranks + 1))});
    return Json::object({{"step", step},
                         {"rank", rank},
                         {"ranks", ranks},
                         {"host", "node" + std::to_string(rank)},
                         {"version", "1"},
                         {"cpu", "AVX2"},
                         {"threads", 1},
                         {"portable", true},
                         {"seed", "7"},
                         {"batches", Json::array({batch})},
                         {"known_sums", sums},
                         {"summed", sums},
                         {"norm", 4.0},
                         {"clipped_norm", 1.0},
                         {"lr", 0.1},
                         {"loss_scale", 1.0},
                         {"taken", true},
                         {"parameters", parameters}});
  }

  std::filesystem::path file(int step, int rank) const {
    return dir.path() / ("step" + std::to_string(step)) / ("rank" + std::to_string(rank)) / "rank.json";
  }
  void write(int step, int rank, const Json& notes) const {
    make_folder(file(step, rank).parent_path());
    std::ofstream(file(step, rank)) << notes.dump(0);
  }
  // Changes one member of a rank's record or, if `parameter` is not negative, of the parameter with that number in the record.
  void change(int step, int rank, const std::string& key, const Json& value, int parameter = -1) const {
    auto notes = load_json(file(step, rank));
    if (parameter < 0) {
      notes.set(key, value);
    } else {
      auto list = notes.at("parameters", "").items("");
      list[static_cast<size_t>(parameter)].set(key, value);
      notes.set("parameters", Json::array(list));
    }
    write(step, rank, notes);
  }
  void change_batch(int step, int rank, const std::string& key, const Json& value) const {
    auto batch = load_json(file(step, rank)).at("batches", "").items("")[0];
    batch.set(key, value);
    change(step, rank, "batches", Json::array({batch}));
  }
  RankComparison compare() const { return compare_ranks(dir.path()); }
  // Returns the first fault; the test fails without one.
  RankFault first() const {
    const auto result = compare();
    REQUIRE(!result.agrees());
    CHECK(!result.faults[0].advice.empty());
    return result.faults[0];
  }
};

}  // namespace

TEST_CASE("ranks whose inputs, losses and gradients differ agree") {
  for (const int count : {2, 3, 8}) {
    const RankDumps ranks(count, 6);
    const auto result = ranks.compare();
    CHECK(result.agrees());
    CHECK(result.complete);
    CHECK(result.notes.empty());
    CHECK(result.steps.size() == 6);
    CHECK(result.ranks.size() == static_cast<size_t>(count));
    CHECK(result.ranks[1].samples == 24);
    CHECK(result.ranks[1].loss.size() == 6);
    CHECK(to_text(result).find("the ranks agree: " + std::to_string(count) + " ranks, 6 steps (0 to 5)") == 0);
  }
}

TEST_CASE("each difference is reported at its step, rank and layer, with its kind") {
  const RankDumps ranks(3, 4);
  struct Case {
    const char *kind, *layer;
    std::string said;
  };
  Case expected{};
  int rank = 2;
  SUBCASE("weights before") {
    ranks.change(1, 2, "before", "x", 0);
    expected = {"weights before the step", "body", "body.weight: rank 2 differs from the other ranks"};
  }
  SUBCASE("seed") {
    ranks.change(1, 2, "seed", "8");
    expected = {"random numbers", "", "is 8 instead of 7"};
  }
  SUBCASE("equal seeds") {
    for (int step = 0; step < 4; ++step)
      for (int r = 0; r < 3; ++r) {
        ranks.change(step, r, "portable", false);
        ranks.change(step, r, "seed", std::to_string(step == 1 && r == 2 ? 0 : r));
      }
    expected = {"random numbers", "", "ranks 0 and 2 have the same seed, 0"};
  }
  SUBCASE("ids") {
    ranks.change_batch(1, 2, "ids", Json::array({Json(12), Json(13), Json(99), Json(98)}));
    expected = {"data", "", "2 of the 4 samples of rank 2 have the ids of samples of rank 0 (its ids are 12 to 99)"};
  }
  SUBCASE("contents") {
    ranks.change_batch(1, 2, "contents", Json::array({Json("c16"), Json("c17"), Json("c18"), Json("c99")}));
    expected = {"data", "", "3 of the 4 samples of rank 2 have the content of samples of rank 1"};
  }
  SUBCASE("loss") {
    ranks.change_batch(1, 2, "loss", NAN);
    expected = {"loss", "", "is nan"};
  }
  SUBCASE("gradient that is not finite") {
    ranks.change(1, 2, "local_square", INFINITY, 1);
    expected = {"gradient norm", "head", "head.bias on rank 2 is not finite"};
  }
  SUBCASE("known sums") {
    ranks.change(1, 2, "summed", Json::array({Json(3.0), Json(5.0)}));
    expected = {"all-reduce", "", "is 5 on rank 2; it must be 6"};
  }
  SUBCASE("reduced gradient") {
    ranks.change(1, 2, "reduced", "x", 1);
    expected = {"reduced gradient", "head", "head.bias: rank 2 differs"};
  }
  SUBCASE("a reduction that is wrong on all ranks") {
    for (int r = 0; r < 3; ++r) ranks.change(1, r, "reduced_sum", 2.0, 1);
    rank = 0;
    expected = {"all-reduce", "head", "add up to 2, those of the ranks to 6"};
  }
  SUBCASE("clip factor") {
    ranks.change(1, 2, "clipped_norm", 2.0);
    expected = {"clip factor", "", "multiplied by 0.5"};
  }
  SUBCASE("clipped gradient") {
    ranks.change(1, 2, "clipped", "x", 0);
    expected = {"clip factor", "body", "after clipping, the gradient of body.weight"};
  }
  SUBCASE("learning rate") {
    ranks.change(1, 2, "lr", 0.2);
    expected = {"schedule", "", "the learning rate is 0.2 instead of 0.1"};
  }
  SUBCASE("weights after") {
    ranks.change(1, 2, "after", "x", 1);
    expected = {"weights after the step", "head", "head.bias: rank 2"};
  }
  const auto fault = ranks.first();
  INFO(fault.text);
  CHECK(fault.kind == expected.kind);
  CHECK(fault.layer == expected.layer);
  CHECK(fault.step == 1);
  CHECK(fault.rank == rank);
  CHECK(fault.text.find(expected.said) != std::string::npos);
  const auto document = to_json(ranks.compare());
  CHECK(document.at("faults", "").items("").size() == 1);
  CHECK(to_html(ranks.compare()).find(fault.kind) != std::string::npos);
}

TEST_CASE("a skipped step may overflow") {
  const RankDumps ranks(2, 2);
  for (int r = 0; r < 2; ++r) {
    ranks.change(1, r, "taken", false);
    ranks.change(1, r, "reduced_sum", NAN, 0);
    ranks.change(1, r, "local_square", INFINITY, 0);
  }
  CHECK(ranks.compare().agrees());
}

TEST_CASE("of effects that follow from each other the cause is first, and later steps are counted") {
  const RankDumps ranks(2, 4);
  for (int step = 1; step < 4; ++step) ranks.change(step, 1, "after", "x" + std::to_string(step), 0);
  ranks.change(1, 1, "lr", 1.0);
  const auto result = ranks.compare();
  REQUIRE(result.faults.size() == 2);
  CHECK(result.faults[0].kind == "schedule");
  CHECK(result.faults[1].kind == "weights after the step");
  CHECK(result.faults[1].more_steps == 2);
  CHECK(result.faults[0].text.find("no majority") != std::string::npos);
}

// The values are drawn from a normal distribution with a fixed seed.
TEST_CASE("statistics: seventy-five healthy runs raise no alarm, and each shifted one does") {
  std::mt19937 engine(11);
  std::normal_distribution<double> normal;
  int alarms = 0, found = 0;
  constexpr int kRuns = 100;
  for (int run = 0; run < kRuns; ++run) {
    const int count = 2 + run % 3, steps = 4 + run % 9;
    const bool shifted = run % 4 == 0;
    const RankDumps ranks(count, steps);
    for (int step = 0; step < steps; ++step)
      for (int rank = 0; rank < count; ++rank) {
        std::array<double, 4> means{};
        double mean = 0, variance = 0;
        for (auto& m : means) mean += (m = 0.2 * normal(engine)) / 4;
        for (const auto m : means) variance += (m - mean) * (m - mean) / 3;
        const bool wrong = shifted && rank == 1;
        ranks.change_batch(step, rank, "means", spread(4, mean + (wrong ? 1.5 : 0), variance));
        ranks.change_batch(step, rank, "loss", 2 - 0.02 * step + 0.2 * normal(engine));
        ranks.change(step, rank, "local_square", std::exp(0.4 * normal(engine)), 0);
      }
    const auto result = ranks.compare();
    if (!shifted)
      alarms += !result.agrees();
    else
      found += !result.agrees() && result.faults[0].kind == "data" && result.faults[0].rank == 1;
  }
  CHECK(alarms == 0);
  CHECK(found == kRuns / 4);
}

TEST_CASE("missing ranks and other machines are noted") {
  const RankDumps ranks(3, 2);
  std::filesystem::remove_all(ranks.file(1, 2).parent_path());
  ranks.change(0, 1, "threads", 4);
  const auto result = ranks.compare();
  CHECK(result.agrees());
  CHECK(!result.complete);
  REQUIRE(result.notes.size() == 2);
  CHECK(result.notes[0].find("step 1 has the dumps of 2 of 3 ranks") == 0);
  CHECK(result.notes[1] == "the ranks differ in the number of threads: 1, 4");
  CHECK(compare_ranks(ranks.dir.path(), {0}).complete);
}

TEST_CASE("other inputs than a dump of ranks") {
  const auto kind = [](const std::filesystem::path& path) { return error_of([&] { compare_ranks(path); }).kind(); };
  const RankDumps ranks(2, 1);
  CHECK((kind(ranks.dir.path() / "none") == ErrorKind::Data));
  CHECK((kind(ranks.dir.path() / "step0") == ErrorKind::Data));
  SUBCASE("of one rank") { std::filesystem::remove(ranks.file(0, 1)); }
  SUBCASE("renamed") { ranks.change(0, 1, "rank", 0); }
  SUBCASE("of another type") { ranks.change(0, 1, "batches", "none"); }
  SUBCASE("cut") { write_file_atomic(ranks.file(0, 1), "{\"step\": 0, \"rank\""); }
  CHECK((kind(ranks.dir.path()) == ErrorKind::Data));
}
