// Graphs. A capture stores tasks instead of running them, and each replay puts these tasks into streams again. The rules are those of
// CANN's runtime, whose sources are public (hicann/runtime, src/runtime/feature/aclgraph): which calls are refused during a capture, with
// which code, and which of them invalidate the capture.
#pragma once

#include <optional>

#include "streams.hpp"

namespace sim_cann {

// aclmdlRICaptureMode and aclmdlRICaptureStatus of acl/acl_rt.h.
enum class CaptureMode : int { Global, ThreadLocal, Relaxed };
enum class CaptureStatus : int { None, Active, Invalidated };

// The functions check each handle of a graph. They return 0 or the error code.
int begin_capture(StreamHandle stream, int mode);
int end_capture(StreamHandle stream, void** graph);
/// Sets `status` to the capture status of the stream, and `graph` to the graph that captures it; nullptr if the stream is not captured.
void find_capture(StreamHandle stream, int* status, void** graph);
/// Sets the capture mode of this thread, which decides whether unsafe calls are allowed, to `mode`. Stores the previous mode in `mode`.
int exchange_capture_mode(int* mode);
int replay(const void* graph, StreamHandle stream);
int destroy_graph(const void* graph);
int id_of_graph(const void* graph, uint32_t* id);

/// Captures a task if its stream is captured. Returns whether the task was captured.
bool capture_task(Stream& stream, const Task& task, const Accesses& accesses);
/// Captures the record of an event if its stream is captured. Returns whether the record was captured.
bool capture_record(const EventPointer& event, const Stream& stream);
/// Captures a wait if the stream or the event's last record is captured. If only the record is captured, the stream joins that capture.
/// Returns 0 or the error code; nullopt if the wait is an ordinary one.
std::optional<int> capture_wait(const EventPointer& event, Stream& stream);

// Return 0, or the error code if the host may not make a call now: a call for a stream or an event that is captured, a call for a device
// with a captured stream, or an unsafe call (a copy that blocks the host), which the mode of any capture can forbid.
int check_stream_call(const char* function, StreamHandle stream);
int check_device_call(const char* function, int device);
int check_event_call(const char* function, const Event& event);
int check_unsafe_call(const char* function, int code = kCaptureModeForbids);

}  // namespace sim_cann
