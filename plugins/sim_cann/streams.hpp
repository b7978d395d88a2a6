// Streams and events. A stream's thread starts with its first task and ends with the stream.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "runtime.hpp"

namespace sim_cann {

struct Task {
  std::string name;
  std::function<void()> run;
  bool is_event = false;  // runs even after a failure, so that nobody waits permanently
};

struct Stream {
  explicit Stream(int on) : device(on) {}
  const int device;
  int id = 0;
  bool is_default = false;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> tasks;
  uint64_t submitted = 0, finished = 0;
  bool ending = false;
  std::string error;  // error of the first task that failed
  std::thread thread;
};

/// For each stream id, how many tasks of the stream, counted from its first one, have ended; see races.cpp.
using Clock = std::vector<uint64_t>;

struct Graph;

/// A point in a stream. Each record moves the event to a new point. A wait refers to the last record before its call.
struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0, reached = 0;
  std::string error;  // error of the stream that reached it; streams that wait for the event then fail, too
  std::chrono::steady_clock::time_point when;
  Clock clock;  // clock at the last record
  // The graph whose capture contains the last record, and the record's number in that graph. graphs.cpp sets both under its lock.
  std::weak_ptr<Graph> graph{};
  size_t captured = 0;
};
using EventPointer = std::shared_ptr<Event>;

Stream* create_stream(int device);
Stream* stream_of(StreamHandle stream);
/// Returns false if there is no such stream.
bool destroy_stream(StreamHandle stream);
bool is_idle(StreamHandle stream);
int synchronize_device(int device, int milliseconds = -1);
void end_all_streams();

/// Whether SIM_CANN_FAULT makes this call of the host fail.
bool host_call_fails(const char* function);
void add_task(StreamHandle stream, Task task, const Accesses& accesses = {});
/// Record an event, and let a stream wait for it. Return 0, or the error if this is not possible while a stream is captured.
int record(const EventPointer& event, StreamHandle stream);
int wait_in_stream(const EventPointer& event, StreamHandle stream);
int wait_on_host(const EventPointer& event);
bool is_reached(const EventPointer& event);

}  // namespace sim_cann
