#include "npu_train/tools/memory/memory_trace.hpp"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

#include "npu_train/base/storage.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"

namespace npu_train {
namespace {

constexpr size_t kLastLayers = 5;

// Returns the address of a tensor's memory. Does not call data(), which throws for a sharded parameter.
const void* memory_of(const at::Tensor& t) {
  return t.defined() && t.has_storage() ? t.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get() : nullptr;
}

std::string shape_of(const at::Tensor& t) { return str_cat(t.sizes()); }

}  // namespace

const char* memory_use_name(MemoryUse use) {
  constexpr const char* names[] = {"parameters", "buffers",   "master weights", "optimizer state",  "averages", "other",
                                   "batch",      "gradients", "activations",    "casts of weights", "workspace"};
  return names[static_cast<int>(use)];
}

MemoryByUse MemoryTrace::live_after(size_t count) const {
  MemoryByUse out{};
  for (size_t i = 0; i < std::min(count, events.size()); ++i) {
    const auto& block = blocks[static_cast<size_t>(events[i].block)];
    out[static_cast<size_t>(block.use)] += events[i].frees ? -block.bytes : block.bytes;
  }
  return out;
}

size_t MemoryTrace::peak_event() const {
  int64_t live = 0, most = 0;
  size_t at = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    const auto bytes = blocks[static_cast<size_t>(events[i].block)].bytes;
    live += events[i].frees ? -bytes : bytes;
    if (live > most) most = live, at = i;
  }
  return at;
}

void ResidentMemory::add(MemoryUse use, const std::vector<at::Tensor>& more) {
  for (const auto& t : more) {
    const auto* memory = memory_of(t);
    if (memory == nullptr || std::find(seen_.begin(), seen_.end(), memory) != seen_.end()) continue;
    seen_.push_back(memory);
    tensors.emplace_back(use, static_cast<int64_t>(t.storage().nbytes()));
  }
}

int64_t ResidentMemory::total() const {
  int64_t out = 0;
  for (const auto& [use, bytes] : tensors) out += bytes;
  return out;
}

MemoryByUse ResidentMemory::by_use() const {
  MemoryByUse out{};
  for (const auto& [use, bytes] : tensors) out[static_cast<size_t>(use)] += bytes;
  return out;
}

// Receives every block from the allocators, in the thread of the step and in those of its backward passes.
class MemoryRecorder::Sink final : public HostBlockWatcher {
 public:
  Sink(c10::DeviceType type, int index, int64_t resident) : type_(type), index_(index), allocated_(resident) {}

  void reportMemoryUsage(void* pointer, int64_t bytes, size_t allocated, size_t reserved, c10::Device device) override {
    if (!mine(device) || bytes == 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    allocated_ = type_ == c10::kCPU ? allocated_ + bytes : static_cast<int64_t>(allocated);
    if (type_ != c10::kCPU) reserved_ = static_cast<int64_t>(reserved);
    if (bytes > 0) {
      live_[pointer].push_back(static_cast<int64_t>(trace_.blocks.size()));
      trace_.events.push_back({static_cast<int64_t>(trace_.blocks.size()), false, phase(), layer()});
      const bool copies = phase() < 0 || phase() == static_cast<int>(Phase::Transfer);
      trace_.blocks.push_back({bytes, copies ? MemoryUse::Batch : MemoryUse::Workspace, layer()});
      made_in_.push_back(phase());
      return;
    }
    const auto found = live_.find(pointer);
    if (found == live_.end()) return;  // the block was allocated before the recording
    const auto block = found->second.back();
    found->second.pop_back();
    if (found->second.empty()) live_.erase(found);
    const auto& freed = trace_.blocks[static_cast<size_t>(block)];
    if (phase() == static_cast<int>(Phase::Backward) && freed.use == MemoryUse::Activations && freed.layer >= 0)
      enter_backward(freed.layer);
    trace_.events.push_back({block, true, phase(), layer()});
  }
  void reportOutOfMemory(int64_t bytes, size_t allocated, size_t reserved, c10::Device device) override {
    if (!mine(device)) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    trace_.refused = bytes;
    trace_.refused_at = trace_.events.size();
    trace_.refused_allocated = static_cast<int64_t>(allocated);
    trace_.refused_reserved = static_cast<int64_t>(reserved);
    if (phase() == static_cast<int>(Phase::Forward)) keep_for_backward();
    trace_.phase = phase();
    trace_.layer = name_of(layer());
  }

  void enter(Phase phase) {
    const std::lock_guard<std::mutex> lock(mutex_);
    phases_.push_back(static_cast<int>(phase));
    first_of_phase_ = trace_.blocks.size();
    if (phase == Phase::Forward || phase == Phase::Backward) layer_ = -1;
  }
  // Ends a phase. Blocks that the forward pass allocated and did not free are kept for the backward pass.
  void leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (phases_.empty()) return;
    if (phase() == static_cast<int>(Phase::Forward)) keep_for_backward();
    phases_.pop_back();
    layer_ = -1;
  }
  void mark(const std::vector<at::Tensor>& tensors, MemoryUse use) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& t : tensors)
      if (const auto found = live_.find(const_cast<void*>(memory_of(t))); found != live_.end())
        trace_.blocks[static_cast<size_t>(found->second.back())].use = use;
  }

  void enter_layer(const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    layer_ = number_of(name);
  }
  // Stores the totals of an allocator that reports no blocks.
  void ask(const MemoryStats& memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    allocated_ = memory.allocated;
    reserved_ = memory.reserved;
  }
  void begin_record(const std::string& layer, const std::string& type, const std::string& inputs) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int number = number_of(layer);
    push({layer, type, phase_word(), inputs + " ->", allocated_, reserved_});
    seen_[number] = trace_.last_layers.back();
  }
  void end_record(const std::string& layer, const std::string& outputs) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (trace_.last_layers.empty() || trace_.last_layers.back().layer != layer) return;
    auto& record = trace_.last_layers.back();
    record.shapes += " " + outputs;
    record.allocated = allocated_;
    record.reserved = reserved_;
    seen_[number_of(layer)] = record;
  }

  MemoryTrace take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [pointer, blocks] : live_)
      for (const auto block : blocks)
        if (made_in_[static_cast<size_t>(block)] == static_cast<int>(Phase::Optimizer))
          trace_.blocks[static_cast<size_t>(block)].use = MemoryUse::Optimizer;
    if (trace_.refused == 0) trace_.phase = phase(), trace_.layer = name_of(layer());
    return trace_;
  }

 private:
  bool mine(c10::Device device) const {
    return device.type() == type_ && (type_ == c10::kCPU || device.index() < 0 || device.index() == index_);
  }
  int phase() const { return phases_.empty() ? -1 : phases_.back(); }
  int layer() const { return layer_; }
  std::string phase_word() const { return phase() < 0 ? "" : phase_name(static_cast<Phase>(phase())); }
  std::string name_of(int number) const { return number < 0 ? "" : trace_.layers[static_cast<size_t>(number)]; }
  int number_of(const std::string& name) {
    if (name.empty()) return -1;
    const auto [at, fresh] = numbers_.try_emplace(name, static_cast<int>(trace_.layers.size()));
    if (fresh) trace_.layers.push_back(name);
    return at->second;
  }
  void push(LayerRecord record) {
    if (trace_.last_layers.size() == kLastLayers) trace_.last_layers.erase(trace_.last_layers.begin());
    trace_.last_layers.push_back(std::move(record));
  }
  void keep_for_backward() {
    for (const auto& [pointer, blocks] : live_)
      for (const auto block : blocks)
        if (made_in_[static_cast<size_t>(block)] == phase() && block >= static_cast<int64_t>(first_of_phase_))
          trace_.blocks[static_cast<size_t>(block)].use = MemoryUse::Activations;
  }
  // Enters the layer whose activations are freed. Only few operators of a backward pass have a parameter of their layer as an input, so the
  // freed blocks show which layer the pass has reached.
  void enter_backward(int number) {
    if (layer_ == number) return;
    layer_ = number;
    const auto seen = seen_.find(number);
    if (seen == seen_.end()) return;
    auto record = seen->second;
    record.phase = phase_word();
    record.allocated = allocated_;
    record.reserved = reserved_;
    push(std::move(record));
  }

  const c10::DeviceType type_;
  const int index_;
  std::mutex mutex_;
  MemoryTrace trace_;
  std::vector<int> made_in_;                              // phase of each block
  std::unordered_map<void*, std::vector<int64_t>> live_;  // blocks by address; two tensors that share memory may both report it
  std::unordered_map<std::string, int> numbers_;          // numbers of layers
  std::map<int, LayerRecord> seen_;                       // records of the forward pass, by layer
  std::vector<int> phases_;
  size_t first_of_phase_ = 0;
  int layer_ = -1;
  int64_t allocated_, reserved_ = -1;
};

MemoryRecorder::MemoryRecorder(Task& task, const Device& device, const ParameterSet& updated, int64_t resident)
    : device_(device),
      parameters_(task.parameters()),
      updated_(updated),
      types_(task.module_types()),
      blocks_(device.is_cpu() ? std::make_optional<HostBlocks>() : std::nullopt),
      sink_(std::make_shared<Sink>(device.c10().type(), device.index, resident)),
      guard_(c10::DebugInfoKind::PROFILER_STATE, sink_) {
  for (const auto& p : parameters_) storages_[storage_of(p.value)] = p.name;
  observer_.reset(new OpObserver(parameters_, *this, /*every=*/true));  // make_unique has no access to the private base class
}

MemoryRecorder::~MemoryRecorder() = default;

void MemoryRecorder::phase_begin(Phase phase, int64_t /*attempt*/, int /*micro_batch*/) { sink_->enter(phase); }

void MemoryRecorder::phase_end(Phase phase, int64_t /*attempt*/, int /*micro_batch*/) {
  if (phase == Phase::Backward) {
    sink_->mark(parameters_.grads(), MemoryUse::Gradients);
    sink_->mark(updated_.grads(), MemoryUse::Gradients);
  }
  sink_->leave();
}

void MemoryRecorder::phase_error(Phase phase, int64_t attempt, int micro_batch, std::exception_ptr /*error*/) {
  phase_end(phase, attempt, micro_batch);
}

std::string MemoryRecorder::parameter_of(const SeenOp& op) const {
  for (const auto& value : op.inputs) {
    if (!value.isTensor()) continue;
    const auto found = storages_.find(storage_of(value.toTensor()));
    if (found != storages_.end() && found->first != nullptr) return found->second;
  }
  return "";
}

// Returns the value to which the layer is applied; nullptr for an operator on parameters only, such as the transposition of a weight.
const at::Tensor* MemoryRecorder::value_in(const SeenOp& op) const {
  for (const auto& value : op.inputs)
    if (value.isTensor() && value.toTensor().defined() && storages_.count(storage_of(value.toTensor())) == 0) return &value.toTensor();
  return nullptr;
}

void MemoryRecorder::op_begins(const SeenOp& op) {
  const auto layer = layer_of(parameter_of(op));
  if (const auto* input = value_in(op); !layer.empty() && input != nullptr) {
    if (device_.kind == "npu") sink_->ask(backend_of(device_).memory(device_));
    const auto type = types_.find(layer);
    sink_->begin_record(layer, type != types_.end() ? type->second : op.name, shape_of(*input));
  }
  if (const auto& name = layer.empty() ? op.scope : layer; !name.empty()) sink_->enter_layer(name);
}

void MemoryRecorder::op_ended(const SeenOp& op) {
  const auto layer = layer_of(parameter_of(op));
  if (!layer.empty() && value_in(op) != nullptr && op.output.defined()) sink_->end_record(layer, shape_of(op.output));
}

MemoryTrace MemoryRecorder::take() { return sink_->take(); }

}  // namespace npu_train
