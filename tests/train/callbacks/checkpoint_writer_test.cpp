#include "testing.hpp"

#include <cmath>
#include <fstream>

#include "train/callbacks/checkpoint_writer.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

using npu_train::detail::CheckpointWriter;

namespace {

struct Written {
  explicit Written(bool async) {
    store = &on_disk;
    step.set_attempts(3);
    meta.score = kNaN;
    writer.emplace(CheckpointWriter::Context{.store = store,
                                             .strategy = *toy.strategy,
                                             .enabled = true,
                                             .async = async,
                                             .observers = toy.observers,
                                             .step = step,
                                             .optimizers = {{.optimizer = toy.optimizer.get()}},
                                             .config = config,
                                             .state =
                                                 [](StateSlices&) {
                                                   return RunState{{"loop", {}}};
                                                 },
                                             .meta = [this] { return meta; },
                                             .not_finite = [] { throw Error(ErrorKind::Diverged, "test", "not finite", ""); },
                                             .written = [this](const std::string& path) { paths.push_back(path); }});
  }
  TempDir dir;
  Toy toy;
  TrainStep step = toy.step();
  CheckpointStore on_disk{(dir / "c").string(), {.save_top_k = -1}};
  CheckpointStore* store;
  ConfigNode config;
  CheckpointMeta meta;
  std::vector<std::string> paths;
  std::optional<CheckpointWriter> writer;
};

}  // namespace

TEST_CASE("a save is on the disk and reported when it returns; one next to the training when it is finished") {
  Written now(false), later(true);
  now.writer->begin();
  CHECK(now.paths == std::vector<std::string>{now.on_disk.last()});
  later.writer->begin();
  CHECK(later.paths.empty());
  later.writer->finish(/*wait=*/true);
  later.writer->finish(true);
  CHECK(later.paths == std::vector<std::string>{later.on_disk.last()});
}

TEST_CASE("the newest checkpoint is that of its attempt, and is written again for a score that it lacks") {
  Written run(true);
  CHECK_FALSE(run.writer->has(3, kNaN));
  run.writer->save();
  CHECK(run.writer->has(3, kNaN));
  CHECK_FALSE(run.writer->has(4, kNaN));
  CHECK_FALSE(run.writer->has(3, 0.5));
  run.meta.score = 0.5;
  run.writer->save();
  CHECK(run.writer->has(3, 0.5));
  run.writer->loaded(9);
  CHECK(run.writer->has(9, kNaN));
}

TEST_CASE("a checkpoint that could not be written is none") {
  Written run(true);
  std::ofstream(run.dir / "c") << "in the way";
  run.writer->begin();
  CHECK(error_of([&] { run.writer->finish(true); }).kind() == ErrorKind::Checkpoint);
  CHECK_FALSE(run.writer->has(3, kNaN));
  CHECK(run.paths.empty());
}

TEST_CASE("weights that are not finite are written to the folder of the diverged run alone") {
  Written run(false);
  {
    const torch::NoGradGuard no_grad;
    run.toy.net->norm->bias[0] = INFINITY;
  }
  CHECK(error_of([&] { run.writer->save(); }).kind() == ErrorKind::Diverged);
  CHECK(error_of([&] { run.writer->begin(); }).kind() == ErrorKind::Diverged);
  CHECK(run.on_disk.last().empty());
  CHECK(run.writer->save_diverged() == (run.dir / "diverged").string());
}

TEST_CASE("without a store nothing is written") {
  Written run(true);
  run.store = nullptr;
  CHECK(run.writer->save().empty());
  run.writer->begin();
  run.writer->finish(true);
  CHECK(run.writer->save_diverged().empty());
  CHECK(run.paths.empty());
}

using npu_train::detail::CheckpointRanking;

TEST_CASE("the score is that of the newest weights, the best one that of all") {
  CheckpointRanking ranking({.monitor = "val/acc1"});
  CHECK(std::isnan(ranking.score()));
  CHECK(std::isnan(ranking.best()));
  ranking.note({}, {{"acc1", 60.0}});
  ranking.note({}, {{"acc1", 50.0}});
  CHECK(ranking.score() == 50);
  CHECK(ranking.best() == 60);
  ranking.forget();
  CHECK(std::isnan(ranking.score()));
  CHECK(ranking.best() == 60);
  ranking.note({{"acc1", 99.0}}, {});  // these metrics are not from a validation
  CHECK(std::isnan(ranking.score()));
}

TEST_CASE("the smaller loss is the better one, unless the mode says otherwise") {
  CheckpointRanking loss({.monitor = "train/loss"}), reversed({.monitor = "train/loss", .mode = "max"});
  for (auto* ranking : {&loss, &reversed})
    for (const double value : {2.0, 1.0, 3.0}) ranking->note({{"loss", value}}, {});
  CHECK(loss.best() == 1);
  CHECK(reversed.best() == 3);
}

TEST_CASE("the best score is in the checkpoint, and the score of the weights is not") {
  CheckpointRanking ranking({.monitor = "val/loss"}), resumed({.monitor = "val/loss"});
  ranking.note({}, {{"loss", 0.25}});
  CHECK(ranking.state().number("best_score", "loop") == 0.25);
  resumed.load_state(ranking.state());
  CHECK(resumed.best() == 0.25);
  CHECK(std::isnan(resumed.score()));
}
