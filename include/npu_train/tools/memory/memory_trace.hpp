/// Records every block of memory that a training step allocates and frees, in order: its size, use, phase and layer.
///
///   MemoryRecorder recorder(*task, device, optimizer.parameters());
///   trainer.loop().observers().add(&recorder);
///   trainer.train_step(batch);
///   trainer.loop().observers().remove(&recorder);
///   const MemoryTrace trace = recorder.take();
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/step_observer.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/device/host_blocks.hpp"
#include "npu_train/trace/op_observer.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train {

/// The use of memory. The first six outlive a step. `Fixed` is what the forward pass keeps for the backward pass independently of the
/// batch, such as casts of weights. `Workspace` is freed in the same phase: temporaries, gradients of activations, recomputed activations.
enum class MemoryUse { Parameters, Buffers, Masters, Optimizer, Averages, Other, Batch, Gradients, Activations, Fixed, Workspace };
constexpr size_t kMemoryUses = 11;
using MemoryByUse = std::array<int64_t, kMemoryUses>;

/// Returns the name in reports and in JSON ("master weights").
const char* memory_use_name(MemoryUse use);

struct MemoryBlock {
  int64_t bytes = 0;
  MemoryUse use = MemoryUse::Workspace;
  int layer = -1;  ///< index in MemoryTrace::layers; -1: none
};

/// An allocation or a free of a block.
struct MemoryEvent {
  int64_t block = 0;  ///< index in MemoryTrace::blocks
  bool frees = false;
  int phase = -1;  ///< a Phase; -1: outside of all phases
  int layer = -1;  ///< running layer; in a backward pass, the layer whose activations are consumed
};

/// The state of memory when a layer ran.
struct LayerRecord {
  std::string layer, type, phase;
  std::string shapes;     ///< "[8, 64, 56, 56] -> [8, 128, 28, 28]"
  int64_t allocated = 0;  ///< bytes on the device
  int64_t reserved = -1;  ///< bytes reserved by the device's allocator; -1: no such allocator
};

struct MemoryTrace {
  std::vector<MemoryBlock> blocks;
  std::vector<MemoryEvent> events;
  std::vector<std::string> layers;
  std::vector<LayerRecord> last_layers;                 ///< records of the last five layers, the latest one last
  int64_t refused = 0;                                  ///< bytes of the request that the device's allocator refused; 0: none
  size_t refused_at = 0;                                ///< number of events before the refusal
  int64_t refused_allocated = 0, refused_reserved = 0;  ///< state of the allocator at that time
  int phase = -1;                                       ///< phase at the end, or when memory was refused
  std::string layer;                                    ///< layer at that time

  /// Returns the bytes, by use, of the blocks that are live after the first `events` events.
  MemoryByUse live_after(size_t events) const;
  /// Returns the index of the event after which the live memory is largest; 0 without events.
  size_t peak_event() const;
};

/// The tensors that persist between steps; memory that several tensors share counts once. These are the tensors of the task, the
/// optimizer's parameters if they are other tensors, the optimizer's state, and averages.
struct ResidentMemory {
  std::vector<std::pair<MemoryUse, int64_t>> tensors;

  void add(MemoryUse use, const std::vector<at::Tensor>& more);
  int64_t total() const;
  MemoryByUse by_use() const;

 private:
  std::vector<const void*> seen_;
};

/// Records the memory that is allocated on `device` during this object's lifetime, by the thread that constructs the object and by the
/// backward passes that this thread starts. Destroy the object in the same thread. A thread can have only one OpObserver.
class MemoryRecorder : public StepObserver, private OpListener {
 public:
  /// `updated`: the optimizer's parameters, if they are other tensors than the task's parameters. `resident`: the initial value of
  /// LayerRecord::allocated, used only on a CPU.
  MemoryRecorder(Task& task, const Device& device, const ParameterSet& updated = {}, int64_t resident = 0);
  ~MemoryRecorder() override;

  void phase_begin(Phase phase, int64_t attempt, int micro_batch) override;
  void phase_end(Phase phase, int64_t attempt, int micro_batch) override;
  void phase_error(Phase phase, int64_t attempt, int micro_batch, std::exception_ptr error) override;

  /// Returns the recorded trace. Blocks of the optimizer phase that are still live count as the optimizer's state.
  MemoryTrace take();

 private:
  class Sink;
  void op_begins(const SeenOp& op) override;
  void op_ended(const SeenOp& op) override;
  bool sees_all() const override { return true; }
  std::string parameter_of(const SeenOp& op) const;
  const at::Tensor* value_in(const SeenOp& op) const;

  Device device_;
  ParameterSet parameters_, updated_;
  std::map<std::string, std::string> types_;
  std::unordered_map<const void*, std::string> storages_;
  std::optional<HostBlocks> blocks_;  // on a CPU
  std::shared_ptr<Sink> sink_;
  c10::DebugInfoGuard guard_;
  std::unique_ptr<OpObserver> observer_;
};

}  // namespace npu_train
