#include "npu_train/base/current_batch.hpp"

#include <utility>

namespace npu_train {
namespace {

thread_local const Batch* shown = nullptr;

}  // namespace

CurrentBatch::CurrentBatch(const Batch& batch) : before_(std::exchange(shown, &batch)) {}
CurrentBatch::~CurrentBatch() { shown = before_; }

const Batch* CurrentBatch::get() { return shown; }

}  // namespace npu_train
