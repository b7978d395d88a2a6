#include "npu_train/nn/saved_tensors.hpp"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <mutex>
#include <utility>

namespace npu_train {
namespace {

using torch::autograd::Engine;
using NodePointer = decltype(torch::autograd::Edge::function);  // a shared_ptr in 2.11, an intrusive_ptr in 2.13

thread_local const SavedTensorHooks* innermost = nullptr;

class NoHooks {
 public:
  NoHooks() : before_(std::exchange(innermost, nullptr)) {}
  ~NoHooks() { innermost = before_; }
  NoHooks(const NoHooks&) = delete;
  NoHooks& operator=(const NoHooks&) = delete;

 private:
  const SavedTensorHooks* before_;
};

// Returns whether `tensor` is a result of the newest node, which is the node that saves it.
bool is_result(const at::Tensor& tensor) {
  const auto& node = tensor.grad_fn();
  return node && node->sequence_nr() + 1 == at::sequence_number::peek();
}

class Hook final : public torch::autograd::SavedVariableHooks {
 public:
  explicit Hook(std::shared_ptr<const SavedTensorHooks::Pack> pack) : pack_(std::move(pack)) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    const NoHooks none;
    // Detaches a result: it refers to the node that saves it, so the two would keep each other alive.
    unpack_ = (*pack_)(tensor.requires_grad() ? tensor.detach() : tensor, is_result(tensor));
    pack_.reset();
  }
  at::Tensor call_unpack_hook() override { return unpack_(); }

 private:
  std::shared_ptr<const SavedTensorHooks::Pack> pack_;
  SavedTensorHooks::Unpack unpack_;
};

}  // namespace

// Autograd asks its engine for hooks. This engine provides them on threads inside a scope of SavedTensorHooks, and forwards all other calls
// to the previous engine (a Python interpreter in the process has its own engine).
struct HookedEngine final : Engine {
  explicit HookedEngine(Engine& previous) : engine(previous) {}

  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots, const torch::autograd::variable_list& inputs,
                                         bool keep_graph, bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    return engine.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(const std::shared_ptr<torch::autograd::GraphTask>& task, NodePointer root,
                                                                 torch::autograd::InputBuffer&& inputs) override {
    return engine.execute_with_graph_task(task, std::move(root), std::move(inputs));
  }
  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override { return engine.make_anomaly_metadata(); }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (innermost == nullptr) return engine.get_default_saved_variable_hooks();
    return std::make_unique<Hook>(innermost->pack_);
  }

  Engine& engine;
};

namespace {

// Replaces the engine while any scope of SavedTensorHooks exists in the process.
class Exchange {
 public:
  void enter() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (regions_++ > 0) return;
    Engine& now = Engine::get_default_engine();
    if (&now != ours_ && &now != original_) {
      original_ = &now;
      ours_ = new HookedEngine(now);  // never freed: threads may be using it
    }
    torch::autograd::set_default_engine_stub([]() -> Engine& { return *ours_; });
  }
  void leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--regions_ > 0 || &Engine::get_default_engine() != ours_) return;
    torch::autograd::set_default_engine_stub([]() -> Engine& { return *original_; });
  }

 private:
  std::mutex mutex_;
  int regions_ = 0;
  static inline Engine *original_ = nullptr, *ours_ = nullptr;
};

Exchange& exchange() {
  static auto* one = new Exchange;
  return *one;
}

}  // namespace

SavedTensorHooks::SavedTensorHooks(Pack pack) : pack_(std::make_shared<const Pack>(std::move(pack))), outer_(innermost) {
  exchange().enter();
  innermost = this;
}

SavedTensorHooks::~SavedTensorHooks() {
  innermost = outer_;
  exchange().leave();
}

SavedTensorHooks::Unpack SavedTensorHooks::save(const at::Tensor& t) {
  if (innermost == nullptr) return [t] { return t; };
  const auto pack = innermost->pack_;
  const NoHooks none;
  return (*pack)(t.detach(), false);
}

}  // namespace npu_train
