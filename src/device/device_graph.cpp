#include "npu_train/device/device_graph.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "device/cuda/cuda_graph.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>

namespace npu_train {
namespace {

c10::DeviceType type_of(const Device& device) { return device.c10().type(); }

// Makes a stream of its own the current one, and gives the old one back.
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

}  // namespace

struct DeviceGraph::Impl {
  std::unique_ptr<at::GraphImplInterface> graph;
};

std::string DeviceGraph::why_not(const Device& device) {
  if (device.kind == "cuda") detail::add_cuda_graphs();
  if (device.is_cpu()) return "a CPU has no graphs";
  if (at::has_graph_impl(type_of(device))) return "";
  return device.str() + " has no graphs in this build of libtorch and npu_train";
}

DeviceGraph::DeviceGraph(const Device& device, const std::function<void()>& work) : impl_(std::make_unique<Impl>()) {
  const auto missing = why_not(device);
  check(missing.empty(), ErrorKind::Device, "DeviceGraph", missing);
  backend_of(device).synchronize(device);  // what is queued elsewhere is done before the new stream begins
  const OwnStream stream(device);
  impl_->graph = at::create_graph_impl(type_of(device));
  impl_->graph->capture_begin({0, 0}, at::GraphCaptureMode::ThreadLocal);  // loaders may go on
  try {
    work();
  } catch (...) {
    try {
      impl_->graph->capture_end();
    } catch (const std::exception&) {  // the capture is broken already, by what is thrown on
    }
    throw;
  }
  impl_->graph->capture_end();
}

DeviceGraph::~DeviceGraph() = default;

void DeviceGraph::replay() { impl_->graph->replay(); }

}  // namespace npu_train

#else  // libtorch before 2.13

namespace npu_train {

struct DeviceGraph::Impl {};
std::string DeviceGraph::why_not(const Device& /*device*/) { return "libtorch has graphs of devices from 2.13 on"; }
DeviceGraph::DeviceGraph(const Device& device, const std::function<void()>& /*work*/) {
  throw Error(ErrorKind::Device, "DeviceGraph", why_not(device));
}
DeviceGraph::~DeviceGraph() = default;
void DeviceGraph::replay() {}

}  // namespace npu_train

#endif
