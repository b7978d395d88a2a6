#include "streams.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "acl.hpp"
#include "graphs.hpp"
#include "races.hpp"

namespace sim_cann {
namespace {

struct Streams {
  std::mutex mutex;
  std::vector<std::shared_ptr<Stream>> all;
  std::array<Stream*, 16> defaults{};
  int next_id = 0;
};

/// Counts of how often each function and operator was put into a stream, and of how often the host waited.
struct Calls {
  std::mutex mutex;
  std::map<std::string, uint64_t> counts;
  std::string text;
};
Calls& calls() {
  static auto* all = new Calls;
  return *all;
}
// Counts a call, and returns the number of its calls so far.
uint64_t count(const std::string& name) {
  const std::lock_guard lock(calls().mutex);
  return ++calls().counts[name];
}

/// A fault that a test plants with SIM_CANN_FAULT=NAME:COUNT:HOW, when a stream runs NAME for the COUNT-th time.
struct Fault {
  std::string name, how;
  uint64_t at = 0;
};

const Fault& fault() {
  static const Fault planted = [] {
    Fault out;
    const char* set = std::getenv("SIM_CANN_FAULT");
    if (set == nullptr || *set == '\0') return out;
    const std::string text = set;
    const size_t first = text.find(':'), second = text.find(':', first == std::string::npos ? first : first + 1);
    if (second != std::string::npos) {
      out = {text.substr(0, first), text.substr(second + 1), std::strtoull(text.c_str() + first + 1, nullptr, 10)};
    }
    if (out.at == 0 || (out.how != "fail" && out.how != "hang" && out.how != "exit")) {
      std::fprintf(stderr, "sim_cann: SIM_CANN_FAULT=%s; allowed: NAME:COUNT:HOW, with a count above 0, and fail, hang or exit\n", set);
      std::_Exit(2);
    }
    return out;
  }();
  return planted;
}

void run_fault() {
  if (fault().how == "exit") std::_Exit(3);
  while (fault().how == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
  throw std::runtime_error("the fault of SIM_CANN_FAULT");
}

/// Adds the counts to the file of SIM_CANN_CALLS=FILE when the process ends.
void write_calls() {
  std::FILE* file = std::fopen(std::getenv("SIM_CANN_CALLS"), "ae");
  if (file == nullptr) return;
  const std::string text = sim_cann_calls();
  std::fwrite(text.data(), 1, text.size(), file);
  std::fclose(file);
}

void prepare_end() {
  std::atexit(end_all_streams);  // before the objects of libtorch, which are older, are destroyed
  if (std::getenv("SIM_CANN_CALLS") == nullptr) return;
  std::atexit(write_calls);
  std::at_quick_exit(write_calls);
}

Streams& streams() {
  static auto* all = new Streams;  // never destroyed: its threads are ended by end_all_streams
  return *all;
}

/// The error of another stream, for which this stream waits.
struct FailedBefore : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string error_of(Stream& stream) {
  const std::lock_guard lock(stream.mutex);
  return stream.error;
}

void run_one(Stream& stream, const Task& task) {
  if (!task.is_event && !error_of(stream).empty()) return;
  std::string error;
  set_running(task.name.c_str());
  try {
    task.run();
  } catch (const FailedBefore& failure) {
    error = failure.what();
  } catch (const std::exception& failure) {
    error = task.name + ": " + failure.what();
    std::fprintf(stderr, "sim_cann: %s\n", error.c_str());  // printed here, since torch_npu does not pass on all error texts
  }
  set_running(nullptr);
  if (error.empty()) return;
  const std::lock_guard lock(stream.mutex);
  if (stream.error.empty()) stream.error = std::move(error);
}

void run_tasks(Stream& stream) {
  set_current_device(stream.device);
  while (true) {
    Task task;
    {
      std::unique_lock lock(stream.mutex);
      stream.changed.wait(lock, [&] { return stream.ending || !stream.tasks.empty(); });
      if (stream.tasks.empty()) return;
      task = std::move(stream.tasks.front());
      stream.tasks.pop_front();
    }
    run_one(stream, task);
    task = {};  // releases what the task holds before anybody learns that it has finished
    {
      const std::lock_guard lock(stream.mutex);
      ++stream.finished;
    }
    stream.changed.notify_all();
  }
}

Stream* add_stream(Streams& s, int device) {
  s.all.push_back(std::make_shared<Stream>(device));
  s.all.back()->id = s.next_id++;
  return s.all.back().get();
}

std::vector<std::shared_ptr<Stream>> snapshot() {
  const std::lock_guard lock(streams().mutex);
  return streams().all;
}

void end_thread(Stream& stream) {
  {
    const std::lock_guard lock(stream.mutex);
    stream.ending = true;
  }
  stream.changed.notify_all();
  if (stream.thread.joinable()) stream.thread.join();
}

int wait_for(Stream& stream, int milliseconds) {
  count("aclrtSynchronizeStream");
  const Clock clock = clock_of(stream);
  std::unique_lock lock(stream.mutex);
  const auto done = [&, until = stream.submitted] { return stream.finished >= until; };
  if (milliseconds < 0) {
    stream.changed.wait(lock, done);
  } else if (!stream.changed.wait_for(lock, std::chrono::milliseconds(milliseconds), done)) {
    return fail(kStreamTimeout, "EE9999: the stream was not finished in " + std::to_string(milliseconds) + " ms");
  }
  host_waited(clock);
  return stream.error.empty() ? int{kSuccess} : fail(kOperatorFailed, "EZ9999: " + stream.error);
}

}  // namespace

Stream* create_stream(int device) {
  const std::lock_guard lock(streams().mutex);
  return add_stream(streams(), device);
}

Stream* stream_of(StreamHandle stream) {
  if (stream != nullptr) return static_cast<Stream*>(stream);
  Streams& s = streams();
  const int device = current_device();
  const std::lock_guard lock(s.mutex);
  auto& out = s.defaults[static_cast<size_t>(device)];
  if (out == nullptr) {
    out = add_stream(s, device);
    out->is_default = true;
  }
  return out;
}

bool destroy_stream(StreamHandle stream) {
  std::shared_ptr<Stream> held;
  {
    Streams& s = streams();
    const std::lock_guard lock(s.mutex);
    const auto at = std::find_if(s.all.begin(), s.all.end(), [&](const auto& one) { return one.get() == stream; });
    if (at == s.all.end()) return false;
    held = *at;
    s.all.erase(at);
  }
  const Clock clock = clock_of(*held);
  end_thread(*held);
  host_waited(clock);
  return true;
}

void end_all_streams() {
  for (const auto& stream : snapshot()) end_thread(*stream);
  const std::lock_guard lock(streams().mutex);
  streams().all.clear();
  streams().defaults = {};
}

bool host_call_fails(const char* function) { return function == fault().name && fault().how == "fail" && count(function) == fault().at; }

void add_task(StreamHandle handle, Task task, const Accesses& accesses) {
  static std::once_flag prepared;
  std::call_once(prepared, prepare_end);
  Stream& stream = *stream_of(handle);
  if (capture_task(stream, task, accesses)) return;
  if (!accesses.empty()) check_task(stream, task.name, accesses);
  if (const uint64_t times = count(task.name); times == fault().at && task.name == fault().name) task.run = run_fault;
  {
    const std::lock_guard lock(stream.mutex);
    if (stream.ending) return;
    if (!stream.thread.joinable()) stream.thread = std::thread([&stream] { run_tasks(stream); });
    stream.tasks.push_back(std::move(task));
    ++stream.submitted;
  }
  stream.changed.notify_all();
}

void enqueue(StreamHandle stream, std::string name, std::function<void()> run, const Accesses& accesses) {
  add_task(stream, {std::move(name), std::move(run), false}, accesses);
}

bool is_idle(StreamHandle handle) {
  Stream& stream = *stream_of(handle);
  const Clock clock = clock_of(stream);
  {
    const std::lock_guard lock(stream.mutex);
    if (stream.finished != stream.submitted) return false;
  }
  host_waited(clock);
  return true;
}

int synchronize(StreamHandle handle, int milliseconds) { return wait_for(*stream_of(handle), milliseconds); }

int synchronize_device(int device, int milliseconds) {
  int code = kSuccess;
  for (const auto& stream : snapshot()) {
    if (stream->device != device) continue;
    const int one = wait_for(*stream, milliseconds);
    if (code == kSuccess) code = one;
  }
  return code;
}

int record(const EventPointer& event, StreamHandle stream) {
  if (capture_record(event, *stream_of(stream))) return kSuccess;
  uint64_t point = 0;
  {
    const std::lock_guard lock(event->mutex);
    point = ++event->recorded;
    event->clock = clock_of(*stream_of(stream));
  }
  const auto reach = [event, point, from = stream_of(stream)] {
    {
      const std::string error = error_of(*from);
      const std::lock_guard lock(event->mutex);
      event->error = error;
      event->reached = std::max(event->reached, point);
      event->when = std::chrono::steady_clock::now();
    }
    event->changed.notify_all();
  };
  add_task(stream, {"aclrtRecordEvent", reach, true});
  return kSuccess;
}

namespace {
// Waits until the event has reached `point`. Returns the error of the stream that recorded it.
std::string wait_until(Event& event, uint64_t point) {
  std::unique_lock lock(event.mutex);
  event.changed.wait(lock, [&] { return event.reached >= point; });
  return event.error;
}
uint64_t last_point(Event& event, Clock& clock) {
  const std::lock_guard lock(event.mutex);
  clock = event.clock;
  return event.recorded;
}
}  // namespace

int wait_in_stream(const EventPointer& event, StreamHandle stream) {
  if (const auto code = capture_wait(event, *stream_of(stream))) return *code;
  Clock clock;
  const auto wait = [event, point = last_point(*event, clock)] {
    if (const std::string error = wait_until(*event, point); !error.empty()) throw FailedBefore(error);
  };
  wait_for_clock(*stream_of(stream), clock);
  add_task(stream, {"aclrtStreamWaitEvent", wait, true});
  return kSuccess;
}

int wait_on_host(const EventPointer& event) {
  count("aclrtSynchronizeEvent");
  Clock clock;
  const std::string error = wait_until(*event, last_point(*event, clock));
  host_waited(clock);
  return error.empty() ? int{kSuccess} : fail(kOperatorFailed, "EZ9999: " + error);
}

bool is_reached(const EventPointer& event) {
  {
    const std::lock_guard lock(event->mutex);
    if (event->reached < event->recorded) return false;
  }
  Clock clock;
  last_point(*event, clock);
  host_waited(clock);
  return true;
}

}  // namespace sim_cann

SIM_CANN_ENTRY const char* sim_cann_calls() {
  auto& all = sim_cann::calls();
  const std::lock_guard lock(all.mutex);
  all.text.clear();
  for (const auto& [name, count] : all.counts) all.text += name + " " + std::to_string(count) + "\n";
  return all.text.c_str();
}
