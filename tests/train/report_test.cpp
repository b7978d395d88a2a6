#include "testing.hpp"

#include "npu_train/train/report.hpp"

#include <set>

using namespace npu_train;

TEST_CASE("a scalar by name") {
  const Scalars s{{"loss", 0.5}, {"acc1", 90}};
  CHECK(scalar_or(s, "acc1", -1) == 90);
  CHECK(scalar_or(s, "acc5", -1) == -1);
}

TEST_CASE("every reason has a sentence of its own") {
  std::set<std::string> names;
  for (const auto r : {StopReason::MaxEpochs, StopReason::MaxSteps, StopReason::MaxTime, StopReason::EarlyStopping, StopReason::Requested,
                       StopReason::FastDevRun})
    names.insert(stop_reason_name(r));
  CHECK(names.size() == 6);
}
