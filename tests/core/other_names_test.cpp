#include "testing.hpp"

#include "npu_train/core/other_names.hpp"

#include <set>

#include "core/facts/other_names.hpp"
#include "npu_train/core/facts_table.hpp"

using namespace npu_train;

TEST_CASE("names of other programs") {
  using Keys = std::vector<std::string>;
  CHECK(keys_called("learning_rate") == Keys{"optimizer.lr"});
  CHECK(keys_called("per-device-train-batch-size") == Keys{"data.batch_size"});
  CHECK(keys_called("FP16") == Keys{"precision"});
  CHECK(keys_called("type").size() == 5);
  CHECK(keys_called("no_such_name").empty());
}

TEST_CASE("no row is given twice") {
  std::set<std::vector<std::string>> seen;
  for (const auto& row : detail::facts_texts(facts::other_names, "other_names.tsv", 2)) {
    CAPTURE(row[0]);
    CHECK(seen.insert(row).second);
  }
}
