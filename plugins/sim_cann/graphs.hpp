// Graphs: tasks that a capture keeps in place of running them, and that each replay puts into streams again. As in CANN's runtime, whose
// sources are public (hicann/runtime, src/runtime/feature/aclgraph): which calls a capture refuses, with which code, and which of them make
// it invalid.
#pragma once

#include <optional>

#include "streams.hpp"

namespace sim_cann {

// aclmdlRICaptureMode and aclmdlRICaptureStatus of acl/acl_rt.h.
enum class CaptureMode : int { Global, ThreadLocal, Relaxed };
enum class CaptureStatus : int { None, Active, Invalidated };

// Each handle of a graph is checked. The functions return 0 or the error.
int begin_capture(StreamHandle stream, int mode);
int end_capture(StreamHandle stream, void** graph);
/// Sets the status of a stream, and the graph that captures it; nullptr if none does.
void find_capture(StreamHandle stream, int* status, void** graph);
/// Sets how this thread may use unsafe calls, and returns in `mode` what it was.
int exchange_capture_mode(int* mode);
int replay(const void* graph, StreamHandle stream);
int destroy_graph(const void* graph);
int id_of_graph(const void* graph, uint32_t* id);

/// Captures a task if its stream is captured; returns whether.
bool capture_task(Stream& stream, const Task& task, const Accesses& accesses);
/// Captures the record of an event if its stream is captured; returns whether.
bool capture_record(const EventPointer& event, const Stream& stream);
/// Captures a wait if the stream or the event's record is captured, by which a stream joins a capture. Returns 0 or the error, or nothing
/// if the wait is an ordinary one.
std::optional<int> capture_wait(const EventPointer& event, Stream& stream);

// Return 0, or the error of a call of the host that is not allowed now: one for a stream or an event that is captured, one for a device
// with such a stream, and an unsafe call (a copy that blocks the host), which the mode of any capture can forbid.
int check_stream_call(const char* function, StreamHandle stream);
int check_device_call(const char* function, int device);
int check_event_call(const char* function, const Event& event);
int check_unsafe_call(const char* function, int code = kCaptureModeForbids);

}  // namespace sim_cann
