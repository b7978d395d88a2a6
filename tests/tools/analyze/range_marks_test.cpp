// Checks the marks that the device's own profiler receives. The test registers its own functions in place of libtorch's.
#include "testing.hpp"

#include <torch/csrc/profiler/stubs/base.h>

#include <string>
#include <vector>

#include "tools/analyze/profile/range_marks.hpp"

using namespace npu_train;

namespace {

struct SeenMarks : torch::profiler::impl::ProfilerStubs {
  mutable std::vector<std::string> seen;
  void record(c10::DeviceIndex*, torch::profiler::impl::ProfilerVoidEventStub*, int64_t*) const override {}
  float elapsed(const torch::profiler::impl::ProfilerVoidEventStub*, const torch::profiler::impl::ProfilerVoidEventStub*) const override {
    return 0;
  }
  void mark(const char*) const override {}
  void rangePush(const char* name) const override { seen.emplace_back(name); }
  void rangePop() const override { seen.emplace_back("<"); }
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)>) const override {}
  void synchronize() const override {}
};

}  // namespace

TEST_CASE("ranges reach the marks of the device's kind, once there are some") {
  const RangeMarks before({"npu", 0});
  before.push("forward");
  before.pop();  // does nothing, as none is registered; libtorch's own placeholder would throw
  static SeenMarks marks;
  torch::profiler::impl::registerPrivateUse1Methods(&marks);
  for (const char* kind : {"npu", "cuda", "cpu"}) {
    const RangeMarks here({kind, 0});
    here.push(kind);
    here.pop();
  }
  CHECK((marks.seen == std::vector<std::string>{"npu", "<"}));
}
