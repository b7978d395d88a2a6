#include "testing.hpp"

#include <ATen/ATen.h>

#include <optional>

#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/device_graph.hpp"

using namespace npu_train;
using npu_train::testing::has;

namespace {

Device simulator() {
  static const Device device = resolve_device("sim_npu");
  return device;
}

}  // namespace

TEST_CASE("device_graph: a capture runs nothing; a replay runs all of it on the values that the memory has then") {
  const auto on = at::TensorOptions().device(simulator().c10());
  const at::Tensor x = at::ones({4}, on), counter = at::zeros({1}, on);
  at::Tensor y, view;
  DeviceGraph graph(simulator(), [&] {
    y = (x * 2 + 1).relu();
    view = y.view({2, 2}).t();
    view.add_(10);
    counter.add_(1);
  });
  CHECK(counter.item<float>() == 0);
  for (int i = 1; i <= 3; ++i) {
    x.fill_(i);
    graph.replay();
    CHECK(y.cpu().equal(at::full({4}, 2 * i + 11.0F)));
    CHECK(counter.item<float>() == i);
  }
  CHECK(view.cpu().equal(at::full({2, 2}, 17.0F)));
}

TEST_CASE("device_graph: random numbers are drawn by the replays, not by the capture") {
  const auto on = at::TensorOptions().device(simulator().c10());
  const at::Tensor x = at::ones({64}, on);
  const auto draw = [&] { return at::dropout(x, 0.5, true); };
  at::manual_seed(3);
  const at::Tensor first = draw().cpu(), second = draw().cpu();
  at::manual_seed(3);
  at::Tensor drawn;
  DeviceGraph graph(simulator(), [&] { drawn = draw(); });
  graph.replay();
  CHECK(drawn.cpu().equal(first));
  graph.replay();
  CHECK(drawn.cpu().equal(second));
}

TEST_CASE("device_graph: what cannot be captured is an error that leaves everything as it was") {
  const auto on = at::TensorOptions().device(simulator().c10());
  const at::Tensor x = at::ones({4}, on);
  const auto fails = [&](const std::function<void()>& work) {
    try {
      DeviceGraph graph(simulator(), work);
    } catch (const std::exception& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(has(fails([&] { x.add_(1).sum().item<float>(); }), "a value was read on the host while a graph is captured"));
  CHECK(has(fails([&] { x.add_(1).copy_(at::zeros({4})); }), "a copy between host and device"));
  CHECK(has(fails([&] { backend_of(simulator()).generator(simulator()).get_state(); }), "the state of the generator was read"));
  CHECK(has(fails([&] { DeviceGraph inner(simulator(), [] {}); }), "another graph is being captured"));
  CHECK(has(fails([&] { throw std::runtime_error("mine"); }), "mine"));
  CHECK(x.cpu().equal(at::ones({4})));
  DeviceGraph graph(simulator(), [&] { x.add_(1); });  // works after the failure
  graph.replay();
  CHECK(x.cpu().equal(at::full({4}, 2.0F)));
}

TEST_CASE("device_graph: devices without graphs report this") {
  CHECK(DeviceGraph::why_not(simulator()).empty());
  CHECK(has(DeviceGraph::why_not({.kind = "cpu"}), "a CPU has no graphs"));
  CHECK(has(DeviceGraph::why_not({.kind = "cuda"}), "cuda:0"));
  std::optional<ErrorKind> kind;
  try {
    DeviceGraph graph({.kind = "cpu"}, [] {});
  } catch (const Error& e) {
    kind = e.kind();
  }
  CHECK((kind == ErrorKind::Device));
}
