#include "train/window_graph.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/full.h>

#include <utility>

#include "npu_train/core/log.hpp"
#include "npu_train/device/device_graph.hpp"
#include "npu_train/device/random.hpp"

namespace npu_train::detail {
namespace {

// Returns a text of everything that decides which kernels run, and of the numbers that the host computes from a window.
std::string shapes_of(const std::vector<Batch>& window, double full_weight) {
  auto out = str_cat(full_weight, ";");
  for (const auto& batch : window) {
    out += str_cat(batch.size, " ", batch.weight, " ", batch.pending.size(), ":");
    for (const auto& [name, tensor] : batch.fields())
      out += str_cat(name, " ", tensor.sizes(), tensor.strides(), tensor.scalar_type(), tensor.device(), ";");
  }
  return out;
}

}  // namespace

WindowGraph::WindowGraph(Device device, const ParameterSet& parameters, std::vector<NamedTensor> buffers, const ParameterSet& updated)
    : device_(std::move(device)), parameters_(parameters), buffers_(std::move(buffers)), updated_(updated) {}

// Returns whether the graph computes this window: it fits an existing graph, or enough windows of the same shape have run to capture one.
bool WindowGraph::takes(const std::vector<Batch>& window, double full_weight) {
  if (given_up_) return false;
  auto shapes = shapes_of(window, full_weight);
  if (graph_ != nullptr) return shapes == shapes_;
  if (shapes == shapes_) return ++seen_ > kEager;
  if (--seen_ > 0) return false;
  shapes_ = shapes;
  seen_ = 1;
  return false;
}

WindowSums WindowGraph::run(const std::vector<Batch>& window, double full_weight, double scale, const Compute& eagerly) {
  if (!takes(window, full_weight) || !prepare(window, eagerly)) return eagerly(window, {});
  const at::NoGradGuard no_grad;
  for (size_t k = 0; k < window.size(); ++k)
    for (const auto& [name, tensor] : window[k].fields()) inputs_[k].at(name).copy_(tensor);
  scale_.fill_(scale);
  graph_->replay();
  for (size_t i = 0; i < updated_.size(); ++i) updated_[i].value.mutable_grad() = gradients_[i];
  auto out = sums_;
  out.sums = sums_.sums.clone();  // copied, because it may be read after the next replay has begun
  return out;
}

// Captures the graph unless there is one that is still valid. Returns false if that fails.
bool WindowGraph::prepare(const std::vector<Batch>& window, const Compute& eagerly) {
  if (graph_ != nullptr && places_ != places()) graph_.reset();  // drops the graph if weights have moved to other memory or were frozen
  if (graph_ != nullptr) return true;
  const RandomState before({device_.c10()});
  try {
    capture(window, eagerly);
    return true;
  } catch (const std::exception& e) {
    given_up_ = true;
    inputs_.clear();
    drop_gradients();
    before.restore();
    const std::string why = e.what();
    log_warning("trainer.cuda_graphs: the step cannot be captured and continues to run operator by operator: ",
                why.substr(0, why.find('\n')));
    return false;
  }
}

void WindowGraph::capture(const std::vector<Batch>& window, const Compute& eagerly) {
  inputs_.clear();
  for (const auto& batch : window) inputs_.push_back(batch.map([](const at::Tensor& t) { return t.clone(); }));
  scale_ = at::full({}, 1.0, at::TensorOptions().dtype(at::kFloat).device(device_.c10()));
  graph_ = std::make_unique<DeviceGraph>(device_, [&] { sums_ = eagerly(inputs_, scale_); });
  gradients_.clear();
  for (const auto& p : updated_) gradients_.push_back(p.value.grad());
  places_ = places();
  log_info("trainer.cuda_graphs: forward and backward of a window are captured");
}

void WindowGraph::drop_gradients() const {
  updated_.zero_grad();
  parameters_.zero_grad();
}

std::vector<WindowGraph::Place> WindowGraph::places() const {
  std::vector<Place> out;
  for (const auto& p : parameters_) out.emplace_back(p.value.const_data_ptr(), p.value.requires_grad());
  for (const auto& [name, buffer] : buffers_) out.emplace_back(buffer.const_data_ptr(), false);
  return out;
}

bool captures_graphs(const TrainerOptions& options, const Device& device, const Task& task, const Strategy& strategy) {
  const bool asked = options.cuda_graphs == "true";
  if (options.cuda_graphs == "false" || (!asked && device.kind != "cuda")) return false;
  auto why_not = DeviceGraph::why_not(device);
  if (why_not.empty() && !asked && !task.capturable()) why_not = "the task does not say that it can be captured (Task::capturable)";
  if (why_not.empty() && !strategy.capturable()) why_not = "the backward waits for other ranks";
  if (why_not.empty() && PortableRandom::is_on()) why_not = "rng: portable draws on the host";
  if (why_not.empty() && options.on_oom == "retry") why_not = "trainer.on_oom: retry cuts windows into other shapes";
  if (why_not.empty() && options.gradient_checkpointing != "none")
    why_not = "trainer.gradient_checkpointing keeps the host in the backward";
  if (why_not.empty()) return true;
  if (asked)
    log_warning("trainer.cuda_graphs: off: ", why_not);
  else
    log_info("trainer.cuda_graphs: off: ", why_not);
  return false;
}

}  // namespace npu_train::detail
