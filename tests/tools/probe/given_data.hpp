/// A data set of a test, for commands that open one by its name.
#pragma once

#include <memory>
#include <utility>

#include "npu_train/data/datasets.hpp"
#include "npu_train/engine/run_config.hpp"

namespace npu_train::testing {

/// Parts with the data set "given", and a configuration that names it.
struct GivenData {
  explicit GivenData(DatasetPair pair) {
    parts.datasets.add<NoOptions>("given", "of this test", [pair = std::move(pair)](const NoOptions&) { return pair; });
    config.device = "cpu";
    config.data.name = "given";
  }
  explicit GivenData(std::shared_ptr<const Dataset> train) : GivenData(pair_of(std::move(train))) {}

  static DatasetPair pair_of(std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> val = nullptr) {
    DatasetPair out;
    out.train = std::move(train);
    out.val = std::move(val);
    return out;
  }

  Parts parts = builtin_parts();
  RunConfig config;
};

}  // namespace npu_train::testing
