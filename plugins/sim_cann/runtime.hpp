// Common parts of the libraries of sim_cann: devices, their memory, and streams. Only libascendcl.so defines them; libopapi.so uses them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#define SIM_CANN_API __attribute__((visibility("default")))

namespace sim_cann {

// The error codes of AscendCL that sim_cann returns.
enum Code : int {
  kSuccess = 0,
  kRepeatedInit = 100002,
  kOperatorNotFound = 100024,
  kInvalidParameter = 107000,
  kInvalidDevice = 107001,
  // Errors of graphs: ACL_ERROR_RT_... of acl/error_codes/rt_error_codes.h in torch_npu.
  kCaptureDependency = 107024,    // CAPTURE_DEPENDENCY
  kStreamUnjoined = 107025,       // STREAM_UNJOINED
  kModelCaptured = 107026,        // MODEL_CAPTURED
  kStreamCaptured = 107027,       // STREAM_CAPTURED
  kEventCaptured = 107028,        // EVENT_CAPTURED
  kStreamNotCaptured = 107029,    // STREAM_NOT_CAPTURED
  kCaptureModeForbids = 107030,   // CAPTURE_MODE_NOT_SUPPORT
  kCaptureImplicit = 107031,      // STREAM_CAPTURE_IMPLICIT
  kCaptureConflict = 107032,      // ACL_ERROR_STREAM_CAPTURE_CONFLICT
  kCaptureUnmatched = 107036,     // STREAM_CAPTURE_UNMATCHED
  kCaptureWrongThread = 107038,   // STREAM_CAPTURE_WRONG_THREAD
  kCaptureForbidsAsync = 107041,  // CAPTURE_MODE_BLOCK_ASYNC
  kNotPlayed = 207000,            // ACL_ERROR_RT_FEATURE_NOT_SUPPORT
  kOutOfMemory = 207001,
  kOperatorFailed = 507015,  // ACL_ERROR_RT_AICORE_EXCEPTION
  kStreamTimeout = 507046,
  kCaptureInvalidated = 507903,  // ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED
  kInvalidArgument = 161002,     // aclnn's code for an argument that an operator does not accept
};

/// A kind of chip: its name as in aclrtGetSocName, its memory and its cores.
struct Soc {
  const char* name;
  int64_t gibibytes, cube_cores, vector_cores;
  bool saturates, has_bf16, has_graphs;
};

/// Returns the chip of this process: SIM_CANN_SOC, by default Ascend910B1.
SIM_CANN_API const Soc& soc();
SIM_CANN_API int device_count();
/// Returns the current device of this thread.
SIM_CANN_API int current_device();
void set_current_device(int device);
/// Converts the number of a device in this process to its number in the machine, according to ASCEND_RT_VISIBLE_DEVICES.
SIM_CANN_API int physical_device(int device);

/// Sets the text that aclGetRecentErrMsg returns next on this thread, and returns the code.
SIM_CANN_API int fail(int code, std::string text);

/// Allocates device memory. The program gets an address that nobody can read or write; host_address() returns where the bytes are.
int allocate(int device, size_t bytes, void** out);
int release(void* address);
bool is_device_address(const void* address);
int device_of(const void* address);
/// Returns the bytes of device memory; a host address is returned unchanged. Throws std::runtime_error unless all of `bytes` are allocated.
SIM_CANN_API void* host_address(const void* address, size_t bytes);
size_t bytes_in_use(int device);
size_t bytes_in_all(int device);
void catch_host_access();

/// Sets the task that this thread runs, for the message of a fault.
void set_running(const char* what);

/// Memory that a task uses: `width` bytes, or `width` bytes for each element of a tensor, whose strides are in elements and not negative.
struct Access {
  const void* start;
  size_t width;
  std::vector<int64_t> sizes{}, strides{};
  bool writes = false;
  std::string text{};  // text for messages; "": a number of bytes
};
using Accesses = std::vector<Access>;
/// Whether races are checked (SIM_CANN_CHECK=races): only then must tasks list their accesses.
SIM_CANN_API bool races_are_checked();

/// A queue of tasks that one thread runs in order.
struct Stream;
using StreamHandle = void*;
/// Appends a task to the stream (nullptr: the default stream of this thread's device). After a task has failed, later ones do not run. If
/// the stream is captured, the task is appended to its graph.
SIM_CANN_API void enqueue(StreamHandle stream, std::string name, std::function<void()> run, const Accesses& accesses = {});
/// Whether tasks that are appended to the stream are captured.
SIM_CANN_API bool is_captured(StreamHandle stream);
/// Waits for all tasks of the stream. Returns 0, the error of the first task that failed, or kStreamTimeout.
int synchronize(StreamHandle stream, int milliseconds = -1);
/// Set, read and clear the sticky overflow status of a device. saturation_mode(): whether overflows saturate.
SIM_CANN_API void raise_float_status(int device);
SIM_CANN_API bool float_status(int device);
SIM_CANN_API void clear_float_status(int device);
SIM_CANN_API bool saturation_mode();

}  // namespace sim_cann
