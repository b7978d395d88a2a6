#include "npu_train/tools/memory/memory_prediction.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "npu_train/core/error.hpp"
#include "tools/memory/caching_allocator.hpp"

namespace npu_train {
namespace {

constexpr int64_t kLargestAsked = int64_t{1} << 20;  // doubling the batch ends here, if the step's memory does not grow with it

bool same_row(const MemoryTrace& a, const MemoryTrace& b) {
  if (a.blocks.size() != b.blocks.size() || a.events.size() != b.events.size()) return false;
  for (size_t i = 0; i < a.events.size(); ++i)
    if (a.events[i].block != b.events[i].block || a.events[i].frees != b.events[i].frees || a.events[i].phase != b.events[i].phase)
      return false;
  return true;
}

std::string phase_word(int phase) { return phase < 0 ? "transfer" : phase_name(static_cast<Phase>(phase)); }

int64_t sum(const MemoryByUse& uses) { return std::accumulate(uses.begin(), uses.end(), int64_t{0}); }

template <class T>
T& entry(std::vector<std::pair<std::string, T>>& list, const std::string& name) {
  for (auto& [key, value] : list)
    if (key == name) return value;
  return list.emplace_back(name, T{}).second;
}

std::vector<std::pair<std::string, int64_t>> phase_peaks(const MemoryTrace& trace) {
  std::vector<std::pair<std::string, int64_t>> out;
  int64_t live = 0;
  for (const auto& e : trace.events) {
    const auto bytes = trace.blocks[static_cast<size_t>(e.block)].bytes;
    live += e.frees ? -bytes : bytes;
    auto& most = entry(out, phase_word(e.phase));
    most = std::max(most, live);
  }
  return out;
}

}  // namespace

MemoryModel::MemoryModel(ResidentMemory resident, MemoryTrace small, int64_t small_batch, MemoryTrace large, int64_t large_batch)
    : resident_(std::move(resident)),
      small_(std::move(small)),
      large_(std::move(large)),
      small_batch_(small_batch),
      large_batch_(large_batch),
      matched_(same_row(small_, large_)) {
  check(small_batch < large_batch, ErrorKind::Usage, "MemoryModel", "the batches are ", small_batch, " and ", large_batch,
        "; the first must be the smaller one");
  if (!matched_) return;
  for (size_t i = 0; i < small_.blocks.size(); ++i)
    if (small_.blocks[i].use == MemoryUse::Activations && small_.blocks[i].bytes == large_.blocks[i].bytes)
      small_.blocks[i].use = MemoryUse::Fixed;
}

int64_t MemoryModel::bytes_of(size_t block, int64_t batch) const {
  const auto a = small_.blocks[block].bytes, b = large_.blocks[block].bytes;
  return std::max<int64_t>(0, a + (b - a) * (batch - small_batch_) / (large_batch_ - small_batch_));
}

int64_t MemoryModel::waiting_bytes(int64_t batch) const {
  if (waiting_ == 0) return 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < small_.blocks.size(); ++i)
    if (small_.blocks[i].use == MemoryUse::Batch) bytes += small_.blocks[i].bytes;
  return bytes * batch / small_batch_ / 2 * waiting_;  // the recorded window has two batches
}

int64_t MemoryModel::allocated_peak(int64_t batch) const {
  int64_t live = resident_.total() + waiting_bytes(batch), most = live;
  for (const auto& e : small_.events) {
    const auto bytes = bytes_of(static_cast<size_t>(e.block), batch);
    live += e.frees ? -bytes : bytes;
    most = std::max(most, live);
  }
  return most;
}

MemoryPeak MemoryModel::straight_lines(int64_t batch) const {
  MemoryPeak out;
  const auto line = [&](int64_t a, int64_t b) {
    return std::max<int64_t>(0, a + (b - a) * (batch - small_batch_) / (large_batch_ - small_batch_));
  };
  auto low = phase_peaks(small_);
  for (const auto& [phase, bytes] : phase_peaks(large_)) {
    const auto most = resident_.total() + line(entry(low, phase), bytes);
    out.phases.emplace_back(phase, most);
    if (most > out.allocated) out.allocated = most, out.phase = phase;
  }
  const auto a = small_.live_after(small_.peak_event() + 1), b = large_.live_after(large_.peak_event() + 1);
  out.uses = resident_.by_use();
  for (size_t i = 0; i < kMemoryUses; ++i) out.uses[i] += line(a[i], b[i]);
  out.uses[static_cast<size_t>(MemoryUse::Workspace)] += out.allocated - sum(out.uses);
  out.reserved = out.allocated + out.allocated / 20;
  return out;
}

namespace {

// Replays a sequence of blocks in a caching allocator.
class Play {
 public:
  Play(const std::vector<std::pair<MemoryUse, int64_t>>& resident, int64_t waiting, size_t blocks, int64_t capacity)
      : allocator_(capacity), handles_(blocks, -1) {
    for (const auto& [use, bytes] : resident) take(bytes);
    if (waiting > 0) take(waiting);
  }
  int64_t take(int64_t bytes) {
    const auto handle = allocator_.take(bytes);
    failed_ |= handle < 0;
    return handle;
  }
  void play(const MemoryEvent& e, int64_t bytes) {
    auto& handle = handles_[static_cast<size_t>(e.block)];
    if (!e.frees) {
      handle = take(bytes);
    } else if (handle >= 0) {
      allocator_.give_back(std::exchange(handle, -1));
    }
  }
  // Frees the blocks that remain after a step. In a run, the next step would free them, but the recording of a step does not contain these
  // frees.
  void end_step() {
    for (auto& handle : handles_)
      if (handle >= 0) allocator_.give_back(std::exchange(handle, -1));
  }
  bool failed() const { return failed_; }
  const detail::CachingAllocatorModel& allocator() const { return allocator_; }
  int64_t peak_reserved() const { return allocator_.peak_reserved(); }

 private:
  detail::CachingAllocatorModel allocator_;
  std::vector<int64_t> handles_;
  bool failed_ = false;
};

constexpr int kStepsOnPlan = 2;  // the second step starts with the free blocks of the first

}  // namespace

AllocatorGaps planned_gaps(const ResidentMemory& resident, const MemoryTrace& trace, size_t events) {
  Play play(resident.tensors, 0, trace.blocks.size(), std::numeric_limits<int64_t>::max());
  int64_t live = resident.total();
  for (size_t i = 0; i < std::min(events, trace.events.size()); ++i) {
    const auto& e = trace.events[i];
    const auto bytes = trace.blocks[static_cast<size_t>(e.block)].bytes;
    play.play(e, bytes);
    live += e.frees ? -bytes : bytes;
  }
  const auto& allocator = play.allocator();
  return {.reserved = allocator.reserved(), .gaps = allocator.reserved() - live, .largest = allocator.largest_free()};
}

MemoryPeak MemoryModel::peak(int64_t batch) const {
  if (!matched_) return straight_lines(batch);
  MemoryPeak out;
  MemoryByUse live = resident_.by_use();
  live[static_cast<size_t>(MemoryUse::Batch)] += waiting_bytes(batch);
  int64_t now = sum(live);
  out.allocated = now;
  out.uses = live;
  out.phase = "between steps";
  for (const auto& e : small_.events) {
    const auto block = static_cast<size_t>(e.block);
    const auto bytes = (e.frees ? -1 : 1) * bytes_of(block, batch);
    live[static_cast<size_t>(small_.blocks[block].use)] += bytes;
    now += bytes;
    auto& of_phase = entry(out.phases, phase_word(e.phase));
    of_phase = std::max(of_phase, now);
    out.timeline.emplace_back(phase_word(e.phase), now);
    if (now <= out.allocated) continue;
    out.allocated = now;
    out.uses = live;
    out.phase = phase_word(e.phase);
    out.layer = e.layer < 0 ? "" : small_.layers[static_cast<size_t>(e.layer)];
  }
  for (size_t i = 0; i < small_.blocks.size(); ++i)
    if (small_.blocks[i].use == MemoryUse::Activations)
      entry(out.activations, small_.blocks[i].layer < 0 ? "(model)" : small_.layers[static_cast<size_t>(small_.blocks[i].layer)]) +=
          bytes_of(i, batch);
  out.reserved = reserved_peak(batch, std::numeric_limits<int64_t>::max());
  return out;
}

int64_t MemoryModel::reserved_peak(int64_t batch, int64_t capacity) const {
  Play play(resident_.tensors, waiting_bytes(batch), small_.blocks.size(), capacity);
  for (int step = 0; step < kStepsOnPlan && !play.failed(); ++step) {
    for (const auto& e : small_.events) play.play(e, bytes_of(static_cast<size_t>(e.block), batch));
    play.end_step();
  }
  return play.failed() ? -1 : play.peak_reserved();
}

bool MemoryModel::fits(int64_t batch, int64_t bytes, bool exact) const {
  if (!matched_) return straight_lines(batch).reserved <= bytes;
  return allocated_peak(batch) <= bytes && (exact || reserved_peak(batch, bytes) >= 0);
}

int64_t MemoryModel::largest_batch(int64_t bytes, bool exact) const {
  int64_t low = 0, high = 1;
  while (high <= kLargestAsked && fits(high, bytes, exact)) low = high, high *= 2;
  while (high - low > 1) {
    const auto middle = low + (high - low) / 2;
    (fits(middle, bytes, exact) ? low : high) = middle;
  }
  return low;
}

int64_t power_below(int64_t batch) {
  int64_t out = batch > 0 ? 1 : 0;
  while (out > 0 && out * 2 <= batch) out *= 2;
  return out;
}

}  // namespace npu_train
