// Streams, events and callbacks of AscendCL.
#include <pthread.h>

#include <deque>
#include <map>

#include "acl.hpp"
#include "graphs.hpp"
#include "streams.hpp"

using namespace sim_cann;

namespace {

EventPointer& event_of(void* event) { return *static_cast<EventPointer*>(event); }

int create_event(void** out) {
  *out = new EventPointer(std::make_shared<Event>());
  return kSuccess;
}

/// Callbacks that a thread runs when it calls aclrtProcessReport.
struct Mailbox {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> calls;
};

struct Mailboxes {
  std::mutex mutex;
  std::map<uint64_t, std::shared_ptr<Mailbox>> of_thread;
  std::map<void*, std::shared_ptr<Mailbox>> of_stream;
};
Mailboxes& mailboxes() {
  static auto* all = new Mailboxes;
  return *all;
}

// Runs in a stream: hands a callback to the thread of `box`. With `wait`, the stream continues when the callback has returned.
void post(Mailbox& box, const std::function<void()>& call, bool wait) {
  auto done = std::make_shared<bool>(false);
  std::unique_lock lock(box.mutex);
  box.calls.push_back([&box, call, done] {
    call();
    const std::lock_guard inner(box.mutex);
    *done = true;
    box.changed.notify_all();
  });
  box.changed.notify_all();
  if (wait) box.changed.wait(lock, [&] { return *done; });
}

}  // namespace

SIM_CANN_ENTRY int aclrtCreateStream(void** out) {
  *out = create_stream(current_device());
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtCreateStreamWithConfig(void** out, uint32_t, uint32_t) { return aclrtCreateStream(out); }
SIM_CANN_ENTRY int aclrtDestroyStream(void* stream) {
  if (const int code = check_stream_call("aclrtDestroyStream", stream); code != kSuccess) return code;
  return destroy_stream(stream) ? int{kSuccess} : fail(kInvalidParameter, "EE1001: aclrtDestroyStream: there is no such stream");
}
SIM_CANN_ENTRY int aclrtDestroyStreamForce(void* stream) { return aclrtDestroyStream(stream); }
SIM_CANN_ENTRY int aclrtSynchronizeStreamWithTimeout(void* stream, int32_t milliseconds) {
  const int code = check_stream_call("aclrtSynchronizeStream", stream);
  return code != kSuccess ? code : synchronize(stream, milliseconds);
}
SIM_CANN_ENTRY int aclrtSynchronizeStream(void* stream) { return aclrtSynchronizeStreamWithTimeout(stream, -1); }
SIM_CANN_ENTRY int aclrtSynchronizeDeviceWithTimeout(int32_t milliseconds) {
  const int code = check_device_call("aclrtSynchronizeDevice", current_device());
  return code != kSuccess ? code : synchronize_device(current_device(), milliseconds);
}
SIM_CANN_ENTRY int aclrtSynchronizeDevice() { return aclrtSynchronizeDeviceWithTimeout(-1); }
SIM_CANN_ENTRY int aclrtStreamQuery(void* stream, int* status) {
  if (const int code = check_stream_call("aclrtStreamQuery", stream); code != kSuccess) return code;
  *status = is_idle(stream) ? 0 : 1;
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtStreamGetId(void* stream, int32_t* id) {
  *id = stream_of(stream)->id;
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtSetStreamFailureMode(void*, uint64_t) { return kSuccess; }  // always mode 1: a stream stops at its first failure
SIM_CANN_ENTRY int aclrtSetStreamOverflowSwitch(void*, uint32_t) { return kSuccess; }
SIM_CANN_ENTRY int aclrtGetStreamOverflowSwitch(void*, uint32_t* on) {
  *on = 1;
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtSetStreamAttribute(void*, int, void*) { return kSuccess; }
SIM_CANN_ENTRY int aclrtUseStreamResInCurrentThread(void*) { return kSuccess; }
SIM_CANN_ENTRY int aclrtUnuseStreamResInCurrentThread(void*) { return kSuccess; }

SIM_CANN_ENTRY int aclrtCreateEvent(void** out) { return create_event(out); }
SIM_CANN_ENTRY int aclrtCreateEventWithFlag(void** out, uint32_t) { return create_event(out); }
SIM_CANN_ENTRY int aclrtCreateEventExWithFlag(void** out, uint32_t) { return create_event(out); }
SIM_CANN_ENTRY int aclrtDestroyEvent(void* event) {
  delete &event_of(event);
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtRecordEvent(void* event, void* stream) { return record(event_of(event), stream); }
SIM_CANN_ENTRY int aclrtResetEvent(void*, void*) { return kSuccess; }
SIM_CANN_ENTRY int aclrtStreamWaitEvent(void* stream, void* event) { return wait_in_stream(event_of(event), stream); }
SIM_CANN_ENTRY int aclrtSynchronizeEvent(void* event) {
  const int code = check_event_call("aclrtSynchronizeEvent", *event_of(event));
  return code != kSuccess ? code : wait_on_host(event_of(event));
}
SIM_CANN_ENTRY int aclrtQueryEventStatus(void* event, int* status) {
  if (const int code = check_event_call("aclrtQueryEventStatus", *event_of(event)); code != kSuccess) return code;
  *status = is_reached(event_of(event)) ? 1 : 0;
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtQueryEventWaitStatus(void* event, int* status) {
  if (const int code = check_event_call("aclrtQueryEventWaitStatus", *event_of(event)); code != kSuccess) return code;
  *status = is_reached(event_of(event)) ? 0 : 1;
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtEventElapsedTime(float* milliseconds, void* start, void* end) {
  if (!is_reached(event_of(start)) || !is_reached(event_of(end))) return fail(kInvalidParameter, "EE1001: an event is not reached yet");
  *milliseconds = std::chrono::duration<float, std::milli>(event_of(end)->when - event_of(start)->when).count();
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtEventGetTimestamp(void* event, uint64_t* microseconds) {
  const auto since = event_of(event)->when.time_since_epoch();
  *microseconds = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(since).count());
  return kSuccess;
}

SIM_CANN_ENTRY int aclrtSubscribeReport(uint64_t thread, void* stream) {
  Mailboxes& all = mailboxes();
  const std::lock_guard lock(all.mutex);
  auto& box = all.of_thread[thread];
  if (!box) box = std::make_shared<Mailbox>();
  all.of_stream[stream] = box;
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtUnSubscribeReport(uint64_t, void* stream) {
  Mailboxes& all = mailboxes();
  const std::lock_guard lock(all.mutex);
  all.of_stream.erase(stream);
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtLaunchCallback(void (*function)(void*), void* argument, int block, void* stream) {
  Mailboxes& all = mailboxes();
  const std::lock_guard lock(all.mutex);
  const auto box = all.of_stream.find(stream);
  if (box == all.of_stream.end()) return fail(100034, "EE1001: aclrtLaunchCallback: no thread has subscribed to the stream");
  enqueue(stream, "aclrtLaunchCallback", [kept = box->second, function, argument, block] {
    post(
        *kept, [=] { function(argument); }, block != 0);
  });
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtProcessReport(int32_t milliseconds) {
  std::shared_ptr<Mailbox> box;
  {
    Mailboxes& all = mailboxes();
    const std::lock_guard lock(all.mutex);
    const auto at = all.of_thread.find(pthread_self());
    if (at == all.of_thread.end()) return fail(100035, "EE1001: aclrtProcessReport: this thread has subscribed to no stream");
    box = at->second;
  }
  std::unique_lock lock(box->mutex);
  const auto any = [&] { return !box->calls.empty(); };
  if (milliseconds < 0) {
    box->changed.wait(lock, any);
  } else if (!box->changed.wait_for(lock, std::chrono::milliseconds(milliseconds), any)) {
    return 100036;  // ACL_ERROR_WAIT_CALLBACK_TIMEOUT
  }
  const auto call = std::move(box->calls.front());
  box->calls.pop_front();
  lock.unlock();
  call();
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtLaunchHostFunc(void* stream, void (*function)(void*), void* argument) {
  enqueue(stream, "aclrtLaunchHostFunc", [=] { function(argument); });
  return kSuccess;
}
