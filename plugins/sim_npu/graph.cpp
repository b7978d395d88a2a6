// Graphs of device work. A capture records the work queued on a stream without executing it; a replay executes it on the same memory. Here
// a capture does run the operators, since later ones depend on the shapes of their results, and then restores the modified memory.
#include <ATen/Generator.h>

#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "sim.hpp"

#if __has_include(<ATen/core/GraphImplInterface.h>)  // libtorch 2.13
#include <ATen/core/GraphImplInterface.h>
#endif

namespace npu_train::sim {
namespace {

std::atomic<Recording*> active{nullptr};

at::Tensor kept(const at::Tensor& t) {
  if (!t.defined()) return t;
  if (on_device(t)) return on_storage_of(t, t);
  at::Tensor copy = t.clone();  // preserves host scalars, including whether they take part in type promotion
  copy.unsafeGetTensorImpl()->set_wrapped_number(t.unsafeGetTensorImpl()->is_wrapped_number());
  return copy;
}

}  // namespace

Recording* recording() {
  auto* graph = active.load();
  return graph != nullptr && graph->is_here() ? graph : nullptr;
}

void refuse_in_graph(const char* what) {
  TORCH_CHECK(recording() == nullptr, "sim_npu: ", what, " while a graph is captured; the host would wait for work that is not executed");
}

c10::IValue Recording::keep(const c10::IValue& value) {
  if (value.isTensor()) return kept(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : value.toTensorList()) list.push_back(kept(t));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& t : value.toOptionalTensorList()) list.push_back(t ? std::optional(kept(*t)) : t);
    return list;
  }
  return value;
}

bool Recording::is_here() const { return current_device() == device_ && current_stream() == stream_; }

void Recording::will_write(const at::Tensor& t) {
  if (!on_device(t)) return;
  const c10::Storage& storage = t.storage();
  const std::lock_guard<std::mutex> lock(mutex_);
  auto [entry, fresh] = before_.try_emplace(storage.unsafeGetStorageImpl(), storage, std::vector<char>());
  if (!fresh || storage.nbytes() == 0) return;
  entry->second.second.resize(storage.nbytes());
  std::memcpy(entry->second.second.data(), host_pointer(storage.unsafeGetStorageImpl()->mutable_data()), storage.nbytes());
}

void Recording::will_write(const c10::IValue& value) {
  if (value.isTensor()) will_write(value.toTensor());
  if (value.isTensorList())
    for (const at::Tensor& t : value.toTensorList()) will_write(t);
}

void Recording::add(std::function<void()> work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  work_.push_back(std::move(work));
}

void Recording::begin() {
  device_ = current_device();
  stream_ = current_stream();
  TORCH_CHECK(stream_ != 0, "sim_npu: a graph must be captured on a separate stream, not on the default one");
  Recording* none = nullptr;
  TORCH_CHECK(active.compare_exchange_strong(none, this), "sim_npu: another graph is being captured");
  random_ = host_generator(device_).get_state();
}

void Recording::end() {
  Recording* self = this;
  if (!active.compare_exchange_strong(self, nullptr)) return;
  for (auto& [impl, saved] : before_)
    if (!saved.second.empty())
      std::memcpy(host_pointer(impl->mutable_data()), saved.second.data(), std::min(saved.second.size(), impl->nbytes()));
  before_.clear();
  host_generator(device_).set_state(random_);
}

void Recording::replay() const {
  TORCH_CHECK(recording() == nullptr, "sim_npu: a graph cannot be replayed during a capture");
  for (const auto& work : work_) work();
}

void Recording::clear() {
  end();
  work_.clear();
}

#if __has_include(<ATen/core/GraphImplInterface.h>)
namespace {

struct Graph final : at::GraphImplInterface {
  explicit Graph(const at::GraphImplArgs& /*args*/) {}
  ~Graph() override { recording_.clear(); }
  void capture_begin(c10::MempoolId_t /*pool*/, at::GraphCaptureMode /*mode*/) override {
    recording_.clear();
    recording_.begin();
  }
  void capture_end() override { recording_.end(); }
  void instantiate() override {}
  void replay() override { recording_.replay(); }
  void reset() override { recording_.clear(); }
  c10::MempoolId_t pool() const override { return {0, 0}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string& path) override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "sim_npu: a graph cannot be drawn; requested file: ", path);
  }

 private:
  Recording recording_;
};

}  // namespace
}  // namespace npu_train::sim

namespace at {
C10_REGISTER_CLASS(GraphImplRegistry, NPU, npu_train::sim::Graph)
}

namespace npu_train::sim {
#endif

}  // namespace npu_train::sim
