#include "testing.hpp"

#include "train/callbacks/checkpoint_ranking.hpp"

using namespace npu_train;
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
  ranking.note({{"acc1", 99.0}}, {});  // these averages are not of a validation
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
