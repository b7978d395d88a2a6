// A happens-before detector with vector clocks. For each stream, a clock has the number of tasks, counted from the first one, that are
// known to have ended. All threads of the host are one actor, in the order of their calls; synchronisation between them is not tracked.
// Every range of memory has its last writer and the readers since then. Two tasks race if one of them writes and neither is known to have
// ended before the other.
#include "races.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "host_blocks.hpp"

namespace sim_cann {
namespace {

constexpr size_t kMostReports = 100;
constexpr size_t kMostRuns = 1 << 14;  // limit for a strided tensor; with more runs, all bytes from its first to its last one count
constexpr int kStatus = 66;            // exit status that other race detectors use, too

/// A task that has accessed memory.
struct Step {
  int stream = -1;  // -1: no task
  uint64_t number = 0;
  std::shared_ptr<const std::string> what{};
};

/// A range of bytes with the same last accesses, from the map's key to `end`.
struct Cell {
  uintptr_t end = 0;
  Step written{};
  std::vector<Step> read{};  // the last read of each stream
};

struct Run {
  uintptr_t begin, end;
};

struct Checker {
  std::mutex mutex;
  std::vector<Clock> streams;  // by stream id
  Clock host;
  std::map<uintptr_t, Cell> cells;
  std::set<std::string> reported;
};
Checker& checker() {
  static auto* all = new Checker;  // never destroyed: streams may run while the process ends
  return *all;
}

uint64_t at(const Clock& clock, int stream) { return static_cast<size_t>(stream) < clock.size() ? clock[static_cast<size_t>(stream)] : 0; }

void join(Clock& into, const Clock& other) {
  if (into.size() < other.size()) into.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

Clock& clock_in(Checker& c, const Stream& stream) {
  const auto id = static_cast<size_t>(stream.id);
  if (c.streams.size() <= id) c.streams.resize(id + 1);
  if (c.streams[id].size() <= id) c.streams[id].resize(id + 1);
  return c.streams[id];
}

void end_with_status() {
  std::fprintf(stderr, "sim_cann: races: %zu; exit status %d\n", checker().reported.size(), kStatus);
  std::fflush(nullptr);
  std::_Exit(kStatus);
}

// Reports only the first race of each `kind`. `where`: the place of the race.
void report(Checker& c, const std::string& kind, const std::string& where) {
  if (c.reported.size() >= kMostReports || !c.reported.insert(kind).second) return;
  if (c.reported.size() == 1) {
    std::atexit(end_with_status);
    std::at_quick_exit(end_with_status);
  }
  std::fprintf(stderr, "sim_cann: race: %s; %s\n", kind.c_str(), where.c_str());
}

std::string text_of(const std::string& task, const Access& access) {
  return task + (access.writes ? " writes " : " reads ") + (access.text.empty() ? std::to_string(access.width) + " bytes" : access.text);
}

// Returns the contiguous ranges of bytes of a tensor without negative strides.
std::vector<Run> runs_of(const Access& access) {
  const auto start = reinterpret_cast<uintptr_t>(access.start);
  std::vector<std::pair<size_t, size_t>> dims;  // stride in bytes, size
  size_t last = 0;
  for (size_t i = 0; i < access.sizes.size(); ++i) {
    if (access.sizes[i] == 0 || access.strides[i] < 0) return {};
    const auto stride = static_cast<size_t>(access.strides[i]) * access.width, size = static_cast<size_t>(access.sizes[i]);
    if (size > 1 && stride > 0) dims.emplace_back(stride, size);
    last += stride * (size - 1);
  }
  std::sort(dims.begin(), dims.end());
  size_t run = access.width, used = 0, count = 1;
  for (; used < dims.size() && dims[used].first <= run; ++used) run = std::max(run, dims[used].first * (dims[used].second - 1) + run);
  for (size_t i = used; i < dims.size(); ++i) count *= dims[i].second;
  if (count > kMostRuns) return {{start, start + last + access.width}};
  std::vector<Run> out = {{start, start + run}};
  for (size_t i = used; i < dims.size(); ++i) {
    const size_t before = out.size();
    for (size_t n = 1; n < dims[i].second; ++n)
      for (size_t k = 0; k < before; ++k) out.push_back({out[k].begin + n * dims[i].first, out[k].end + n * dims[i].first});
  }
  return out;
}

using Place = std::map<uintptr_t, Cell>::iterator;

// Splits the cell that contains the address, so that a cell begins there.
void split(Checker& c, uintptr_t address) {
  auto place = c.cells.upper_bound(address);
  if (place == c.cells.begin() || (--place, place->first == address || place->second.end <= address)) return;
  Cell rest = place->second;
  place->second.end = address;
  c.cells.emplace(address, std::move(rest));
}

/// Calls `other` for each step that has accessed the range and is not known to have ended. For some steps, calls it several times.
template <class Found>
void for_unordered(Checker& c, const Run& run, bool writes, int stream, const Clock& known, const Found& other) {
  auto place = c.cells.upper_bound(run.begin);
  if (place != c.cells.begin() && std::prev(place)->second.end > run.begin) --place;
  const auto check = [&](const Step& step) {
    if (step.stream >= 0 && step.stream != stream && at(known, step.stream) < step.number) other(step, std::max(place->first, run.begin));
  };
  for (; place != c.cells.end() && place->first < run.end; ++place) {
    check(place->second.written);
    if (writes) std::for_each(place->second.read.begin(), place->second.read.end(), check);
  }
}

void note_write(Checker& c, const Run& run, const Step& step) {
  split(c, run.begin);
  split(c, run.end);
  c.cells.erase(c.cells.lower_bound(run.begin), c.cells.lower_bound(run.end));
  if (step.stream >= 0) c.cells[run.begin] = {.end = run.end, .written = step};
}

void note_read(Checker& c, const Run& run, const Step& step) {
  split(c, run.begin);
  split(c, run.end);
  uintptr_t next = run.begin;
  const auto fill = [&](uintptr_t end) {
    if (next < end) c.cells[next] = {.end = end};
  };
  for (auto place = c.cells.lower_bound(run.begin); place != c.cells.end() && place->first < run.end; ++place) {
    fill(place->first);
    next = place->second.end;
  }
  fill(run.end);
  for (auto place = c.cells.lower_bound(run.begin); place != c.cells.end() && place->first < run.end; ++place) {
    auto& all = place->second.read;
    const auto own = std::find_if(all.begin(), all.end(), [&](const Step& s) { return s.stream == step.stream; });
    if (own == all.end()) {
      all.push_back(step);
    } else {
      *own = step;
    }
  }
}

std::string place_text(uintptr_t address) {
  char text[64];
  const auto* p = reinterpret_cast<const void*>(address);  // NOLINT: an address of the program
  if (is_device_address(p)) {
    std::snprintf(text, sizeof text, "at %p of npu:%d", p, device_of(p));
  } else {
    std::snprintf(text, sizeof text, "at %p of pinned memory", p);
  }
  return text;
}

std::string in_stream(int stream) { return " in stream " + std::to_string(stream); }

}  // namespace

bool races_are_checked() {
  static const bool on = [] {
    const char* set = std::getenv("SIM_CANN_CHECK");
    if (set == nullptr || *set == '\0') return false;
    if (std::strcmp(set, "races") == 0) return true;
    std::fprintf(stderr, "sim_cann: SIM_CANN_CHECK=%s; allowed: races\n", set);
    std::_Exit(2);
  }();
  return on;
}

void check_task(const Stream& stream, const std::string& task, const Accesses& accesses) {
  Checker& c = checker();
  const std::lock_guard lock(c.mutex);
  Clock& clock = clock_in(c, stream);
  join(clock, c.host);
  const uint64_t number = ++clock[static_cast<size_t>(stream.id)];
  for (const Access& access : accesses) {
    const Step step{stream.id, number, std::make_shared<const std::string>(text_of(task, access) + in_stream(stream.id))};
    for (const Run& run : runs_of(access)) {
      for_unordered(c, run, access.writes, stream.id, clock, [&](const Step& other, uintptr_t address) {
        report(c, *other.what + ", and " + *step.what + ", which does not wait for it",
               place_text(address) + "; hint: wait_stream or wait_event before the second one; record_stream if the memory was freed");
      });
      access.writes ? note_write(c, run, step) : note_read(c, run, step);
    }
    if (access.sizes.empty()) add_pending({access.start, access.width, access.writes, stream.id, number, *step.what});
  }
}

void check_host(const char* function, const Accesses& accesses) {
  Checker& c = checker();
  const std::lock_guard lock(c.mutex);
  for (const Access& access : accesses) {
    for (const Run& run : runs_of(access)) {
      for_unordered(c, run, access.writes, -1, c.host, [&](const Step& other, uintptr_t address) {
        report(c, *other.what + ", and " + text_of(function, access) + " on the host, which does not wait for it",
               place_text(address) + "; hint: synchronize the stream or an event first");
      });
      if (access.writes) note_write(c, run, {});
    }
  }
}

Clock clock_of(const Stream& stream) {
  if (!races_are_checked()) return {};
  Checker& c = checker();
  const std::lock_guard lock(c.mutex);
  return clock_in(c, stream);
}

void wait_for_clock(const Stream& stream, const Clock& clock) {
  if (!races_are_checked()) return;
  Checker& c = checker();
  const std::lock_guard lock(c.mutex);
  join(clock_in(c, stream), clock);
}

void host_waited(const Clock& clock) {
  if (!races_are_checked()) return;
  Checker& c = checker();
  const std::lock_guard lock(c.mutex);
  join(c.host, clock);
  drop_pending([&](const Pending& p) { return at(c.host, p.stream) >= p.number; });
}

void forget(const void* start, size_t bytes) {
  if (!races_are_checked()) return;
  Checker& c = checker();
  const std::lock_guard lock(c.mutex);
  const auto begin = reinterpret_cast<uintptr_t>(start);
  note_write(c, {begin, begin + bytes}, {});
}

bool host_access_is_checked(const void* address, bool of_host) {
  Checker& c = checker();
  const std::lock_guard lock(c.mutex);
  std::string what;
  if (!open_block(address, what)) return false;
  if (what.empty() || !of_host) return true;
  report(c, what + ", and the host accesses this memory, but does not wait for it",
         place_text(reinterpret_cast<uintptr_t>(address)) + "; hint: synchronize the stream or an event first");
  return true;
}

}  // namespace sim_cann
