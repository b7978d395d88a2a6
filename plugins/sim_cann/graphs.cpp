#include "graphs.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

namespace sim_cann {

/// The calls that one capture has recorded. Stream 0 is the stream in which the capture began. A replay replaces stream 0 by the stream
/// that its caller gives, and each other captured stream by one of the graph's own streams.
struct Graph {
  enum class Kind { Task, Record, Wait };
  struct Item {
    Kind kind;
    size_t stream;     // index of the captured stream
    size_t event = 0;  // number of a record; for a wait, the number of the record that it waits for
    Task task{};
    Accesses accesses{};
  };
  uint32_t id = 0;
  int device = 0;
  CaptureMode mode = CaptureMode::Global;
  CaptureStatus status = CaptureStatus::Active;  // None: the capture has ended
  std::thread::id thread{};                      // thread that began the capture
  std::vector<Stream*> captured{}, own{};
  std::vector<Item> items{};  // in the order of the calls
  size_t records = 0;
};

namespace {

using GraphPointer = std::shared_ptr<Graph>;

struct Graphs {
  std::mutex mutex;
  std::map<const void*, GraphPointer> all;
  uint32_t next_id = 1;
};
Graphs& graphs() {
  static auto* all = new Graphs;  // never destroyed: streams may run while the process ends
  return *all;
}

std::atomic<int> captures{0};  // captures that have begun and not ended; while there are none, calls need no lock
thread_local CaptureMode exchanged = CaptureMode::Global;

int refuse_call(int code, const char* function, const std::string& why) {
  return fail(code, std::string("EE1016: ") + function + ": " + why);
}

// Returns the graph that captures the stream. The caller must hold the lock, as for all functions up to begin_capture().
GraphPointer capture_of(const Graphs& g, const Stream& stream) {
  for (const auto& [handle, graph] : g.all) {
    const auto& streams = graph->captured;
    if (std::find(streams.begin(), streams.end(), &stream) != streams.end()) return graph;
  }
  return nullptr;
}

// Returns the graph whose capture contains the event's last record; nullptr if there is none, or if its capture has ended.
GraphPointer capture_of(const Event& event) {
  auto graph = event.graph.lock();
  return graph != nullptr && graph->status != CaptureStatus::None ? graph : nullptr;
}

size_t index_in(const Graph& graph, const Stream& stream) {
  const auto at = std::find(graph.captured.begin(), graph.captured.end(), &stream);
  return static_cast<size_t>(at - graph.captured.begin());
}

// Whether all streams are joined to the first one. CANN's rule: each other stream ends with the record of an event for which another stream
// waits, and one of these waits is in the first stream.
bool is_joined(const Graph& graph) {
  std::vector<const Graph::Item*> last(graph.captured.size(), nullptr);
  for (const auto& item : graph.items) last[item.stream] = &item;
  bool reaches_first = last.size() == 1;
  for (size_t k = 1; k < last.size(); ++k) {
    if (last[k] == nullptr || last[k]->kind != Graph::Kind::Record) return false;
    bool is_waited_for = false;
    for (const auto& item : graph.items) {
      if (item.kind != Graph::Kind::Wait || item.event != last[k]->event || item.stream == k) continue;
      is_waited_for = true;
      reaches_first |= item.stream == 0;
    }
    if (!is_waited_for) return false;
  }
  return reaches_first;
}

// Returns 0, or the error because of which a capture produces no graph.
int check_end(const Graph& graph) {
  constexpr const char* kName = "aclmdlRICaptureEnd";
  if (graph.mode != CaptureMode::Relaxed && graph.thread != std::this_thread::get_id())
    return refuse_call(kCaptureWrongThread, kName, "another thread began the capture");
  if (graph.status == CaptureStatus::Invalidated) return refuse_call(kCaptureInvalidated, kName, "an error has made the capture invalid");
  if (!is_joined(graph)) {
    return refuse_call(kStreamUnjoined, kName,
                       "a stream that joined the capture does not end with the record of an event for which the first stream waits");
  }
  return kSuccess;
}

// Returns the strictest mode of the captures for which `counts` is true, or nothing if there are none.
template <class Counts>
std::optional<CaptureMode> strictest(const Graphs& g, const Counts& counts) {
  std::optional<CaptureMode> out;
  for (const auto& [handle, graph] : g.all)
    if (graph->status != CaptureStatus::None && counts(*graph)) out = std::min(out.value_or(CaptureMode::Relaxed), graph->mode);
  return out;
}

// Follows Context::IsCaptureModeSupport of CANN's runtime.
bool unsafe_calls_are_allowed(const Graphs& g) {
  const auto everywhere = strictest(g, [](const Graph& graph) { return graph.device == current_device(); });
  if (!everywhere.has_value() || exchanged == CaptureMode::Relaxed) return true;
  const auto here = strictest(g, [](const Graph& graph) { return graph.thread == std::this_thread::get_id(); });
  if (exchanged == CaptureMode::Global) return everywhere != CaptureMode::Global && here != CaptureMode::ThreadLocal;
  return !here.has_value() || here == CaptureMode::Relaxed;
}

}  // namespace

int begin_capture(StreamHandle handle, int mode) {
  constexpr const char* kName = "aclmdlRICaptureBegin";
  if (!soc().has_graphs) return refuse_call(kNotPlayed, kName, std::string(soc().name) + " has no graphs");
  if (mode < 0 || mode > static_cast<int>(CaptureMode::Relaxed))
    return fail(kInvalidParameter, "EE1001: aclmdlRICaptureBegin: mode " + std::to_string(mode) + "; allowed: 0 to 2");
  Stream& stream = *stream_of(handle);
  if (stream.is_default) return refuse_call(kNotPlayed, kName, "the default stream cannot be captured");
  Graphs& g = graphs();
  const std::lock_guard lock(g.mutex);
  if (capture_of(g, stream) != nullptr) return refuse_call(kStreamCaptured, kName, "the stream is already captured");
  auto graph = std::make_shared<Graph>();
  graph->id = g.next_id++;
  graph->device = stream.device;
  graph->mode = static_cast<CaptureMode>(mode);
  graph->thread = std::this_thread::get_id();
  graph->captured = {&stream};
  g.all[graph.get()] = std::move(graph);
  ++captures;
  return kSuccess;
}

int end_capture(StreamHandle handle, void** out) {
  constexpr const char* kName = "aclmdlRICaptureEnd";
  *out = nullptr;
  Stream& stream = *stream_of(handle);
  Graphs& g = graphs();
  const std::lock_guard lock(g.mutex);
  const auto graph = capture_of(g, stream);
  if (graph == nullptr) return refuse_call(kStreamNotCaptured, kName, "the stream is not captured");
  if (graph->captured.front() != &stream) return refuse_call(kCaptureUnmatched, kName, "the capture did not begin in this stream");
  const int code = check_end(*graph);
  --captures;
  graph->status = CaptureStatus::None;
  if (code == kSuccess) {
    for (size_t k = 1; k < graph->captured.size(); ++k) graph->own.push_back(create_stream(graph->device));
    *out = graph.get();
  } else {
    g.all.erase(graph.get());
  }
  graph->captured.clear();
  return code;
}

void find_capture(StreamHandle handle, int* status, void** out) {
  GraphPointer graph;
  CaptureStatus found = CaptureStatus::None;
  if (captures > 0) {
    const Stream& stream = *stream_of(handle);
    const std::lock_guard lock(graphs().mutex);
    graph = capture_of(graphs(), stream);
    if (graph != nullptr) found = graph->status;
  }
  if (status != nullptr) *status = static_cast<int>(found);
  if (out != nullptr) *out = graph.get();
}

bool is_captured(StreamHandle handle) {
  int status = 0;
  find_capture(handle, &status, nullptr);
  return status != static_cast<int>(CaptureStatus::None);
}

int exchange_capture_mode(int* mode) {
  if (*mode < 0 || *mode > static_cast<int>(CaptureMode::Relaxed))
    return fail(kInvalidParameter, "EE1001: aclmdlRICaptureThreadExchangeMode: mode " + std::to_string(*mode) + "; allowed: 0 to 2");
  *mode = static_cast<int>(std::exchange(exchanged, static_cast<CaptureMode>(*mode)));
  return kSuccess;
}

namespace {
// Finds a graph whose capture has ended.
int find_graph(const char* function, const void* handle, GraphPointer& out) {
  Graphs& g = graphs();
  const std::lock_guard lock(g.mutex);
  const auto at = g.all.find(handle);
  if (at == g.all.end()) return fail(kInvalidParameter, std::string("EE1001: ") + function + ": there is no such graph");
  if (at->second->status != CaptureStatus::None) return refuse_call(kModelCaptured, function, "the graph is still being captured");
  out = at->second;
  return kSuccess;
}
}  // namespace

int replay(const void* handle, StreamHandle stream) {
  constexpr const char* kName = "aclmdlRIExecuteAsync";
  GraphPointer graph;
  if (const int code = find_graph(kName, handle, graph); code != kSuccess) return code;
  if (const int code = check_stream_call(kName, stream); code != kSuccess) return code;
  add_task(stream, {kName, [] {}});  // counts the replay as one launch
  std::vector<EventPointer> events(graph->records);
  for (auto& event : events) event = std::make_shared<Event>();
  for (const auto& item : graph->items) {
    const StreamHandle where = item.stream == 0 ? stream : graph->own[item.stream - 1];
    switch (item.kind) {
      case Graph::Kind::Task:
        add_task(where, item.task, item.accesses);
        break;
      case Graph::Kind::Record:
        record(events[item.event], where);
        break;
      case Graph::Kind::Wait:
        wait_in_stream(events[item.event], where);
        break;
    }
  }
  return kSuccess;
}

int destroy_graph(const void* handle) {
  GraphPointer graph;
  if (const int code = find_graph("aclmdlRIDestroy", handle, graph); code != kSuccess) return code;
  {
    Graphs& g = graphs();
    const std::lock_guard lock(g.mutex);
    if (g.all.erase(handle) == 0) return fail(kInvalidParameter, "EE1001: aclmdlRIDestroy: there is no such graph");
  }
  for (Stream* stream : graph->own) destroy_stream(stream);  // waits for replays that have not ended
  return kSuccess;
}

int id_of_graph(const void* handle, uint32_t* id) {
  Graphs& g = graphs();
  const std::lock_guard lock(g.mutex);
  const auto at = g.all.find(handle);
  if (at == g.all.end()) return fail(kInvalidParameter, "EE1001: aclmdlRIGetId: there is no such graph");
  *id = at->second->id;
  return kSuccess;
}

bool capture_task(Stream& stream, const Task& task, const Accesses& accesses) {
  if (captures == 0) return false;
  const std::lock_guard lock(graphs().mutex);
  const auto graph = capture_of(graphs(), stream);
  if (graph == nullptr) return false;
  graph->items.push_back({.kind = Graph::Kind::Task, .stream = index_in(*graph, stream), .task = task, .accesses = accesses});
  return true;
}

bool capture_record(const EventPointer& event, const Stream& stream) {
  if (captures == 0) return false;
  const std::lock_guard lock(graphs().mutex);
  const auto graph = capture_of(graphs(), stream);
  event->graph = graph;
  if (graph == nullptr) return false;
  event->captured = graph->records++;
  graph->items.push_back({.kind = Graph::Kind::Record, .stream = index_in(*graph, stream), .event = event->captured});
  return true;
}

std::optional<int> capture_wait(const EventPointer& event, Stream& stream) {
  if (captures == 0) return std::nullopt;
  constexpr const char* kName = "aclrtStreamWaitEvent";
  const std::lock_guard lock(graphs().mutex);
  const auto graph = capture_of(graphs(), stream), recorded = capture_of(*event);
  if (recorded == nullptr) {
    if (graph == nullptr) return std::nullopt;
    const std::lock_guard inner(event->mutex);
    if (event->recorded == 0) return kSuccess;
    return refuse_call(kCaptureDependency, kName, "the stream is captured, but the event was recorded outside of its capture");
  }
  if (graph != nullptr && graph != recorded) {
    graph->status = recorded->status = CaptureStatus::Invalidated;
    return refuse_call(kCaptureConflict, kName, "the stream and the event belong to two captures");
  }
  if (graph == nullptr && stream.is_default) {
    recorded->status = CaptureStatus::Invalidated;
    return refuse_call(kCaptureImplicit, kName, "the default stream cannot join a capture");
  }
  if (graph == nullptr) recorded->captured.push_back(&stream);
  recorded->items.push_back({.kind = Graph::Kind::Wait, .stream = index_in(*recorded, stream), .event = event->captured});
  return kSuccess;
}

int check_stream_call(const char* function, StreamHandle stream) {
  return is_captured(stream) ? refuse_call(kStreamCaptured, function, "the stream is captured") : int{kSuccess};
}

int check_device_call(const char* function, int device) {
  if (captures == 0) return kSuccess;
  const std::lock_guard lock(graphs().mutex);
  if (!strictest(graphs(), [&](const Graph& graph) { return graph.device == device; }).has_value()) return kSuccess;
  return refuse_call(kStreamCaptured, function, "a stream of the device is captured");
}

int check_event_call(const char* function, const Event& event) {
  if (captures == 0) return kSuccess;
  const std::lock_guard lock(graphs().mutex);
  return capture_of(event) == nullptr ? int{kSuccess} : refuse_call(kEventCaptured, function, "the event was recorded in a capture");
}

int check_unsafe_call(const char* function, int code) {
  if (captures == 0) return kSuccess;
  const std::lock_guard lock(graphs().mutex);
  return unsafe_calls_are_allowed(graphs()) ? int{kSuccess} : refuse_call(code, function, "the mode of a capture does not allow it");
}

}  // namespace sim_cann
