#include "npu_train/device/device_graph.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "device/cuda/cuda_graph.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"

#if __has_include(<ATen/core/GraphImplInterface.h>)  // libtorch 2.13 and newer
#include <ATen/core/GraphImplInterface.h>
#endif

namespace npu_train {
namespace {

c10::DeviceType type_of(const Device& device) { return device.c10().type(); }

// Switches to a new stream in its scope; the destructor restores the previous one.
class OwnStream {
 public:
  explicit OwnStream(const Device& device)
      : guard_(type_of(device)), before_(guard_.exchangeStream(guard_.getStreamFromGlobalPool(guard_.getStream(device.c10()).device()))) {}
  ~OwnStream() { guard_.exchangeStream(before_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

 private:
  c10::impl::VirtualGuardImpl guard_;
  c10::Stream before_;
};

#if __has_include(<ATen/core/GraphImplInterface.h>)
// A graph implementation that a device has registered with libtorch.
class RegisteredGraph final : public detail::CapturedWork {
 public:
  explicit RegisteredGraph(c10::DeviceType type) : graph_(at::create_graph_impl(type)) {}
  void begin() override { graph_->capture_begin({0, 0}, at::GraphCaptureMode::ThreadLocal); }
  void end() override { graph_->capture_end(); }
  void replay() override { graph_->replay(); }

 private:
  std::unique_ptr<at::GraphImplInterface> graph_;
};

std::unique_ptr<detail::CapturedWork> registered_graph(c10::DeviceType type) {
  return at::has_graph_impl(type) ? std::make_unique<RegisteredGraph>(type) : nullptr;
}
#else
std::unique_ptr<detail::CapturedWork> registered_graph(c10::DeviceType /*type*/) { return nullptr; }
#endif

std::unique_ptr<detail::CapturedWork> graph_of(const Device& device) {
  return device.kind == "cuda" ? detail::make_cuda_graph() : registered_graph(type_of(device));
}

}  // namespace

struct DeviceGraph::Impl {
  std::unique_ptr<detail::CapturedWork> graph;
};

std::string DeviceGraph::why_not(const Device& device) {
  if (device.is_cpu()) return "a CPU has no graphs";
  if (graph_of(device) == nullptr) return device.str() + " has no graphs in this build of libtorch and npu_train";
  return backend_of(device).capabilities(device).graphs ? "" : device.str() + " has no graphs: this chip cannot capture one";
}

DeviceGraph::DeviceGraph(const Device& device, const std::function<void()>& work) : impl_(std::make_unique<Impl>()) {
  const auto missing = why_not(device);
  check(missing.empty(), ErrorKind::Device, "DeviceGraph", missing);
  backend_of(device).synchronize(device);  // the new stream must not overtake work on other streams
  const OwnStream stream(device);
  impl_->graph = graph_of(device);
  impl_->graph->begin();
  try {
    work();
  } catch (...) {
    try {
      impl_->graph->end();
    } catch (const std::exception&) {  // the capture is invalid already; the original exception is rethrown
    }
    throw;
  }
  impl_->graph->end();
}

DeviceGraph::~DeviceGraph() = default;

void DeviceGraph::replay() { impl_->graph->replay(); }

}  // namespace npu_train
