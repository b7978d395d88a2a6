#include "tools/analyze/profile/range_marks.hpp"

#include <torch/csrc/profiler/stubs/base.h>

namespace npu_train {

RangeMarks::RangeMarks(const Device& device) {
  const auto* stubs = device.is_cpu()         ? nullptr
                      : device.kind == "cuda" ? torch::profiler::impl::cudaStubs()
                                              : torch::profiler::impl::privateuse1Stubs();
  if (stubs != nullptr && stubs->enabled()) stubs_ = stubs;
}

void RangeMarks::push(const std::string& name) const {
  if (stubs_ != nullptr) stubs_->rangePush(name.c_str());
}

void RangeMarks::pop() const {
  if (stubs_ != nullptr) stubs_->rangePop();
}

}  // namespace npu_train
