#include "npu_train/data/loader.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>

#include "data/batch_builder.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/core/log.hpp"

namespace npu_train {

using detail::Job;

namespace {

// Of this thread only. Asked of the OpenMP runtime that libtorch has loaded: a compiler may bring another one, or none.
void run_on_one_thread() {
  static auto* const set = reinterpret_cast<void (*)(int)>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set != nullptr) set(1);
}

std::string order_digest(const std::vector<int64_t>& order) { return hex64(hash64(order.data(), order.size() * sizeof(int64_t))); }

/// A stream has no last batch until it ends.
constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

}  // namespace

struct Loader::Impl {
  Impl(std::shared_ptr<const Dataset> d, std::shared_ptr<IterableDataset> s, Pipeline pipeline, LoaderOptions o)
      : dataset(std::move(d)),
        stream(std::move(s)),
        options(std::move(o)),
        info(dataset != nullptr ? dataset->info() : stream->info()),
        builder(dataset, std::move(pipeline), options, info),
        seed(options.seed) {
    chunk = options.num_workers > 0 ? std::clamp<int64_t>(options.batch_size / (2 * options.num_workers), 1, 64) : options.batch_size;
  }
  /// Apart from the constructor, so that the destructor joins those that did start when one cannot.
  void launch() {
    for (int64_t i = 0; i < options.num_workers; ++i) workers.emplace_back([this] { work(); });
  }
  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    work_there.notify_all();
    for (auto& worker : workers) worker.join();
  }

  std::vector<int64_t> order_of(int64_t of_epoch) const {
    return options.shuffle ? permutation(seed, of_epoch, dataset->size()) : sequence(dataset->size());
  }
  int64_t batches_of(int64_t samples) const {
    return options.last_batch == LastBatch::Drop ? samples / options.batch_size : (samples + options.batch_size - 1) / options.batch_size;
  }
  int64_t samples_on_rank() const {
    const int64_t n = dataset->size(), ranks = options.world_size;
    if (options.shard == ShardMode::Pad) return (n + ranks - 1) / ranks;
    return n / ranks + (options.shard == ShardMode::Uneven && options.rank < n % ranks ? 1 : 0);
  }

  void work();
  void start(int64_t of_epoch, int64_t first_batch);
  std::shared_ptr<Job> open_next();
  void read_stream(Job& job);
  std::shared_ptr<Job> take_ready();
  bool may_open() const {
    return !opening && next_index < end && static_cast<int64_t>(jobs.size()) < options.num_workers * options.prefetch_factor;
  }
  std::shared_ptr<Job> with_work_left() const;
  void note_bad_samples(const Job& job);
  void report_bad_samples();
  void fail(Job& job) const { job.error = std::current_exception(); }

  const std::shared_ptr<const Dataset> dataset;
  const std::shared_ptr<IterableDataset> stream;
  const LoaderOptions options;
  const DatasetInfo info;
  const detail::BatchBuilder builder;
  int64_t chunk = 1;

  // The consumer's side.
  uint64_t seed;
  int64_t epoch = 0, cursor = 0;
  bool begun = false;
  int64_t bad_samples = 0;  // of this epoch
  int64_t reported_bad = 0;
  int64_t named_bad = 0;  // of all epochs
  State stream_state;     // after the batch given last
  bool loaded = false;    // stream_state was loaded and not begun yet

  // Shared with the workers.
  mutable std::mutex mutex;
  std::condition_variable work_there, batch_there;
  std::deque<std::shared_ptr<Job>> jobs;  // open or ready, in order
  std::vector<int64_t> mine;              // samples of this epoch on this rank
  uint64_t job_seed = 0;
  int64_t job_epoch = 0;
  int64_t next_index = 0, end = 0;  // the batch to open next; the one after the last
  int64_t next_number = 0;          // of the stream's samples
  bool opening = false;             // somebody is at `open_next`, outside the lock: the order of opening is the order of batches
  bool stop = false;
  std::vector<std::thread> workers;  // last: they use all of the above
};

std::shared_ptr<Job> Loader::Impl::with_work_left() const {
  for (const auto& job : jobs) {
    if (job->next_sample < static_cast<int64_t>(job->ids.size()) && !job->error) return job;
  }
  return nullptr;
}

/// Called by one thread at a time, without the lock. Null at the end of a stream.
std::shared_ptr<Job> Loader::Impl::open_next() {
  auto job = std::make_shared<Job>();
  job->epoch = job_epoch;
  job->index = next_index;
  try {
    if (stream != nullptr) {
      read_stream(*job);
      const auto real = static_cast<int64_t>(job->ids.size());
      if (real == 0 || (real < options.batch_size && options.last_batch == LastBatch::Drop)) return nullptr;
    } else {
      const int64_t first = next_index * options.batch_size;
      const int64_t last = std::min(first + options.batch_size, static_cast<int64_t>(mine.size()));
      job->ids.assign(mine.begin() + first, mine.begin() + last);
      builder.open(*job);
    }
    if (options.skip_bad_samples) job->bad.resize(job->ids.size());
  } catch (...) {
    const Error cause = translate_current_exception("Loader");
    job->error = std::make_exception_ptr(
        stream != nullptr ? Error(cause.kind(), "Loader", "sample " + std::to_string(next_number) + " of the stream: " + cause.what(), "",
                                  std::current_exception())
                          : cause);
    job->ready = true;
  }
  return job;
}

void Loader::Impl::read_stream(Job& job) {
  while (static_cast<int64_t>(job.ids.size()) < options.batch_size) {
    auto sample = stream->next();
    if (!sample.has_value()) break;
    job.ids.push_back(sample->index >= 0 ? sample->index : next_number);
    ++next_number;
    job.samples.push_back(std::move(*sample));
  }
  job.stream_state = stream->state();
}

void Loader::Impl::work() {
  run_on_one_thread();  // what a data set calls must not start a team per worker
  std::unique_lock lock(mutex);
  for (;;) {
    std::shared_ptr<Job> job;
    work_there.wait(lock, [&] { return stop || (job = with_work_left()) != nullptr || may_open(); });
    if (stop) return;
    if (job == nullptr) {
      opening = true;
      lock.unlock();
      auto opened = open_next();
      lock.lock();
      opening = false;
      if (opened != nullptr) {
        ++next_index;
        jobs.push_back(std::move(opened));
      } else {
        end = next_index;
      }
      work_there.notify_all();
      batch_there.notify_all();
      continue;
    }
    const int64_t begin = job->next_sample, total = static_cast<int64_t>(job->ids.size());
    const int64_t until = std::min(begin + chunk, total);
    const uint64_t with_seed = job_seed;
    job->next_sample = until;
    lock.unlock();
    std::exception_ptr error;
    try {
      builder.fill(*job, begin, until, with_seed);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && !job->error) job->error = error;
    job->done += until - begin;
    // After an error the samples that nobody has begun are left alone.
    if (job->error ? job->done < job->next_sample : job->done < total) continue;
    if (!job->error) {
      lock.unlock();
      try {
        builder.close(*job);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      job->error = error;
    }
    job->ready = true;
    batch_there.notify_all();
  }
}

void Loader::Impl::start(int64_t of_epoch, int64_t first_batch) {
  std::unique_lock lock(mutex);
  batch_there.wait(lock, [&] { return !opening; });
  // Batches under way are let go; a worker that is at one keeps it alive until it has done its part.
  jobs.clear();
  opening = true;
  lock.unlock();
  std::exception_ptr error;
  int64_t last = kUnknown;
  try {
    if (dataset != nullptr) {
      mine = shard(order_of(of_epoch), options.rank, options.world_size, options.shard);
      last = batches_of(static_cast<int64_t>(mine.size()));
      check(first_batch <= last, ErrorKind::Usage, "Loader", "first_batch is ", first_batch, "; an epoch has ", last, " batches");
    } else {
      next_number = first_batch * options.batch_size;
      stream->begin_epoch(of_epoch);
      const bool there = loaded && of_epoch == epoch && first_batch == cursor && first_batch > 0;
      if (there) {
        stream->load_state(stream_state);
      } else {
        for (int64_t i = 0; i < next_number && stream->next().has_value(); ++i) {
        }
      }
      stream_state = stream->state();
    }
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  opening = false;
  job_epoch = of_epoch;
  job_seed = seed;
  next_index = first_batch;
  end = error ? first_batch : last;
  epoch = of_epoch;
  cursor = first_batch;
  bad_samples = reported_bad = 0;
  loaded = false;
  begun = !error;
  lock.unlock();
  work_there.notify_all();
  if (error) std::rethrow_exception(error);
}

/// The next batch in turn, made or awaited; null at the end.
std::shared_ptr<Job> Loader::Impl::take_ready() {
  if (options.num_workers == 0) {
    if (next_index >= end) return nullptr;
    auto job = open_next();
    if (job == nullptr) {
      end = next_index;
      return nullptr;
    }
    ++next_index;
    if (job->error) return job;
    try {
      builder.fill(*job, 0, static_cast<int64_t>(job->ids.size()), job_seed);
      builder.close(*job);
    } catch (...) {
      fail(*job);
    }
    return job;
  }
  std::unique_lock lock(mutex);
  batch_there.wait(lock, [&] { return jobs.empty() ? next_index >= end && !opening : jobs.front()->ready; });
  if (jobs.empty()) return nullptr;
  auto job = std::move(jobs.front());
  jobs.pop_front();
  lock.unlock();
  work_there.notify_all();
  return job;
}

void Loader::Impl::note_bad_samples(const Job& job) {
  constexpr int64_t kMostNamed = 10;
  for (const auto& why : job.bad) {
    if (why.empty()) continue;
    ++bad_samples;
    if (named_bad >= kMostNamed) continue;
    log_warning("left out: ", why, ++named_bad == kMostNamed ? " (further ones are counted only; npu_tool data check lists all)" : "");
  }
}

/// At the end of an epoch; a second next() there says nothing.
void Loader::Impl::report_bad_samples() {
  if (bad_samples == reported_bad) return;
  reported_bad = bad_samples;
  log_warning(bad_samples, dataset != nullptr ? c10::str(" of ", samples_on_rank()) : std::string(),
              " samples could not be read and were left out of epoch ", epoch, " (data.on_bad_sample: skip)");
}

Loader::Loader(std::shared_ptr<const Dataset> dataset, Pipeline pipeline, LoaderOptions options) {
  check(dataset != nullptr, ErrorKind::Usage, "Loader", "there is no data set");
  options = detail::checked(std::move(options), dataset.get());
  impl_ = std::make_unique<Impl>(std::move(dataset), nullptr, std::move(pipeline), std::move(options));
  translated("Loader", [&] { impl_->launch(); });
}

Loader::Loader(std::shared_ptr<IterableDataset> stream, Pipeline pipeline, LoaderOptions options) {
  check(stream != nullptr, ErrorKind::Usage, "Loader", "there is no stream");
  options = detail::checked(std::move(options), nullptr);
  if (options.world_size > 1) stream->shard(options.rank, options.world_size);
  impl_ = std::make_unique<Impl>(nullptr, std::move(stream), std::move(pipeline), std::move(options));
  translated("Loader", [&] { impl_->launch(); });
}

Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

void Loader::begin_epoch(int64_t epoch, int64_t first_batch) {
  check(epoch >= 0 && first_batch >= 0, ErrorKind::Usage, "Loader", "epoch ", epoch, ", first_batch ", first_batch,
        "; neither may be negative");
  impl_->start(epoch, first_batch);
}

std::optional<Batch> Loader::next() {
  auto& self = *impl_;
  check(self.begun, ErrorKind::Usage, "Loader", "next() before begin_epoch()");
  std::shared_ptr<Job> job;
  do {
    job = self.take_ready();
    if (job == nullptr) {
      self.report_bad_samples();
      return std::nullopt;
    }
    ++self.cursor;
    if (job->error) std::rethrow_exception(job->error);
    self.note_bad_samples(*job);
  } while (job->ids.empty());
  self.stream_state = std::move(job->stream_state);
  if (!self.options.transfer) return std::move(job->batch);
  return translated("Loader", [&] { return self.options.transfer(std::move(job->batch)); });
}

std::optional<int64_t> Loader::batches_per_epoch() const {
  if (impl_->stream != nullptr) return std::nullopt;
  return impl_->batches_of(impl_->samples_on_rank());
}

std::optional<int64_t> Loader::samples_per_epoch() const {
  if (impl_->stream != nullptr) return std::nullopt;
  const int64_t n = impl_->samples_on_rank();
  return impl_->options.last_batch == LastBatch::Drop ? n / impl_->options.batch_size * impl_->options.batch_size : n;
}

int64_t Loader::epoch() const { return impl_->epoch; }
int64_t Loader::cursor() const { return impl_->cursor; }
int64_t Loader::bad_samples() const { return impl_->bad_samples; }
const DatasetInfo& Loader::info() const { return impl_->info; }
const LoaderOptions& Loader::options() const { return impl_->options; }

State Loader::state() const {
  const auto& self = *impl_;
  State out;
  out.values["seed"] = static_cast<int64_t>(self.seed);
  out.values["epoch"] = self.epoch;
  out.values["cursor"] = self.cursor;
  out.values["batch_size"] = self.options.batch_size;
  out.values["world_size"] = self.options.world_size;
  if (self.dataset != nullptr) {
    out.values["samples"] = self.dataset->size();
    out.values["order"] = order_digest(self.order_of(self.epoch));
  } else {
    for (const auto& [key, value] : self.stream_state.values) out.values["stream/" + key] = value;
    for (const auto& [key, value] : self.stream_state.tensors) out.tensors["stream/" + key] = value;
  }
  return out;
}

void Loader::load_state(const State& state) {
  auto& self = *impl_;
  const char* const part = "data loader";
  const auto seed = static_cast<uint64_t>(state.integer("seed", part));
  const int64_t epoch = state.integer("epoch", part), cursor = state.integer("cursor", part);
  const int64_t batch_size = state.integer("batch_size", part), world_size = state.integer("world_size", part);
  check(epoch >= 0 && cursor >= 0, ErrorKind::Checkpoint, part, "the state stands at epoch ", epoch, ", batch ", cursor);
  check(cursor == 0 || (batch_size == self.options.batch_size && world_size == self.options.world_size), ErrorKind::Checkpoint, part,
        "the state stands inside an epoch, with batches of ", batch_size, " on ", world_size, " ranks; here they are ",
        self.options.batch_size, " on ", self.options.world_size, "; resume with the same, or from the end of an epoch");
  State of_stream;
  if (self.dataset != nullptr && cursor > 0) {  // between epochs other data may follow
    const int64_t samples = state.integer("samples", part);
    check(samples == self.dataset->size(), ErrorKind::Checkpoint, part, "the state belongs to a data set of ", samples,
          " samples; this one has ", self.dataset->size());
    const uint64_t before = std::exchange(self.seed, seed);
    const std::string here = order_digest(self.order_of(epoch));
    self.seed = before;
    check(here == state.text("order", part), ErrorKind::Checkpoint, part, "the order of the samples in epoch ", epoch,
          " is not the one of the state (shuffled or not?)");
  } else if (self.dataset == nullptr) {
    const std::string prefix = "stream/";
    for (const auto& [key, value] : state.values) {
      if (key.starts_with(prefix)) of_stream.values[key.substr(prefix.size())] = value;
    }
    for (const auto& [key, value] : state.tensors) {
      if (key.starts_with(prefix)) of_stream.tensors[key.substr(prefix.size())] = value;
    }
  }
  self.seed = seed;
  self.epoch = epoch;
  self.cursor = cursor;
  self.stream_state = std::move(of_stream);
  self.loaded = true;
  self.begun = false;
}

}  // namespace npu_train
