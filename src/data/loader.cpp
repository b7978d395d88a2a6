#include "data/loader_impl.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <limits>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"

namespace npu_train {

using detail::Job;

namespace {

// Affects only the calling thread. Calls the OpenMP runtime that libtorch has loaded, because the compiler may link another one, or none.
void run_on_one_thread() {
  static auto* const set = reinterpret_cast<void (*)(int)>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set != nullptr) set(1);
}

/// A stream has an unknown number of batches until it ends.
constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

}  // namespace

std::shared_ptr<Job> Loader::Impl::with_work_left() const {
  for (const auto& job : jobs) {
    if (job->next_sample < job->to_make && !job->error) return job;
  }
  return nullptr;
}

/// Called by one thread at a time, without the lock. Returns null at the end of a stream.
std::shared_ptr<Job> Loader::Impl::open_next() {
  auto job = std::make_shared<Job>();
  job->epoch = job_epoch;
  job->index = index_of(next_round);
  try {
    if (stream != nullptr) {
      read_stream(*job);
      const auto real = static_cast<int64_t>(job->ids.size());
      if (real == 0 || (real < options.batch_size && options.last_batch == LastBatch::Drop)) return nullptr;
    } else {
      job->ids = sampler->indices(next_round);
    }
    job->to_make = static_cast<int64_t>(job->ids.size());
    builder.open(*job);
    if (options.skip_bad_samples) job->bad.resize(job->ids.size());
  } catch (...) {
    const Error cause = translate_current_exception("Loader", stream != nullptr ? ErrorKind::Data : ErrorKind::Internal);
    const std::string what = cause.where() == "Loader" ? cause.message() : cause.what();
    job->error = std::make_exception_ptr(stream != nullptr ? Error(cause.kind(), "Loader",
                                                                   "sample " + std::to_string(next_number) + " of the stream: " + what, "",
                                                                   std::current_exception())
                                                           : cause);
    job->ready = true;
  }
  return job;
}

void Loader::Impl::read_stream(Job& job) {
  while (static_cast<int64_t>(job.ids.size()) < options.batch_size) {
    if (images != nullptr) {
      auto image = images->next_image();
      if (!image.has_value()) break;
      job.ids.push_back(next_number);
      job.images.push_back(std::move(*image));
    } else {
      auto sample = stream->next();
      if (!sample.has_value()) break;
      job.ids.push_back(sample->index >= 0 ? sample->index : next_number);
      job.samples.push_back(std::move(*sample));
    }
    next_number += options.world_size;
  }
  job.stream_state = stream->state();
}

void Loader::Impl::work() {
  run_on_one_thread();  // functions of a data set must not start a thread team per worker
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
        ++next_round;
        jobs.push_back(std::move(opened));
      } else {
        end = next_round;
      }
      work_there.notify_all();
      batch_there.notify_all();
      continue;
    }
    const int64_t begin = job->next_sample, until = std::min(begin + chunk, job->to_make);
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
    // After an error, samples that no worker has begun are not processed.
    if (job->error ? job->done < job->next_sample : job->done < job->to_make) continue;
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

/// Skips the next sample of the stream, without decoding an image. Returns false at the end.
bool Loader::Impl::pass_sample() const { return images != nullptr ? images->next_image().has_value() : stream->next().has_value(); }

/// Continues the stream from the loaded state if that is this rank's; otherwise reads the stream up to the position.
void Loader::Impl::start_stream(int64_t of_epoch, int64_t from_batch) {
  const auto own_before = [&](int64_t batches) {  // number of this rank's samples in the first `batches` micro-batches of all ranks
    return std::max<int64_t>(0, batches * options.batch_size - options.rank + options.world_size - 1) / options.world_size;
  };
  const bool other_ranks = loaded_ranks > 0 && loaded_ranks != options.world_size;
  check(!other_ranks || stream->shards_by_sample() || of_epoch != epoch || from_batch == 0, ErrorKind::Checkpoint, "data loader",
        "the state is inside an epoch that ", loaded_ranks, " ranks read, each its own files, and ", options.world_size,
        " cannot continue it; hint: resume with ", loaded_ranks, " ranks, or from a checkpoint of the end of an epoch");
  stream->set_seed(seed);
  stream->begin_epoch(of_epoch);
  const bool there = loaded && of_epoch == epoch && cursor > 0 && cursor <= from_batch;
  if (there) stream->load_state(stream_state);
  const int64_t wanted = own_before(from_batch);
  for (int64_t i = there ? own_before(cursor) : 0; i < wanted && pass_sample(); ++i) {
  }
  next_number = options.rank + wanted * options.world_size;
  stream_state = stream->state();
}

void Loader::Impl::start(int64_t of_epoch, int64_t from_batch) {
  std::unique_lock lock(mutex);
  batch_there.wait(lock, [&] { return !opening; });
  // Unfinished batches are dropped; a worker keeps its batch alive until its part is done.
  jobs.clear();
  opening = true;
  lock.unlock();
  std::exception_ptr error;
  int64_t rounds = kUnknown;
  try {
    if (dataset != nullptr) {
      sampler.emplace(sampler_of(seed));
      sampler->set_epoch(of_epoch, from_batch);
      rounds = sampler->rounds_on_rank();
    } else {
      start_stream(of_epoch, from_batch);
    }
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  opening = false;
  job_epoch = of_epoch;
  job_seed = seed;
  first_batch = from_batch;
  next_round = 0;
  end = error ? 0 : rounds;
  epoch = of_epoch;
  cursor = from_batch;
  bad_samples = reported_bad = 0;
  loaded = false;
  loaded_ranks = 0;
  begun = !error;
  lock.unlock();
  work_there.notify_all();
  if (error) std::rethrow_exception(error);
}

/// Returns the next batch in order, which it makes or waits for; null at the end.
std::shared_ptr<Job> Loader::Impl::take_ready() {
  if (options.num_workers == 0) {
    if (next_round >= end) return nullptr;
    auto job = open_next();
    if (job == nullptr) {
      end = next_round;
      return nullptr;
    }
    ++next_round;
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
  batch_there.wait(lock, [&] { return jobs.empty() ? next_round >= end && !opening : jobs.front()->ready; });
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
    log_warning("omitted: ", why, ++named_bad == kMostNamed ? " (further ones are counted only; npu_tool data check lists all)" : "");
  }
}

/// Reports the omitted samples at the end of an epoch. If next() is called again at the end, there is nothing new to report.
void Loader::Impl::report_bad_samples() {
  if (bad_samples == reported_bad) return;
  reported_bad = bad_samples;
  log_warning(bad_samples, dataset != nullptr ? str_cat(" of ", sampler->samples_on_rank()) : std::string(),
              " samples could not be read and were omitted from epoch ", epoch, " (data.on_bad_sample: skip)");
}

BatchHook chain_hooks(BatchHook first, BatchHook second) {
  if (!first) return second;
  if (!second) return first;
  return [first = std::move(first), second = std::move(second)](Batch batch) { return second(first(std::move(batch))); };
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
      if (self.sampler) self.cursor = self.sampler->batches();
      self.report_bad_samples();
      return std::nullopt;
    }
    self.cursor += self.options.world_size;
    if (self.sampler) self.cursor = std::min(self.cursor, self.sampler->batches());
    if (job->error) std::rethrow_exception(job->error);
    self.note_bad_samples(*job);
  } while (job->ids.empty());
  self.stream_state = std::move(job->stream_state);
  if (!self.options.transfer) return std::move(job->batch);
  return translated("Loader", [&] { return self.options.transfer(std::move(job->batch)); });
}

std::optional<int64_t> Loader::batches_per_epoch() const {
  return impl_->sampler ? std::optional(impl_->sampler->batches_on_rank()) : std::nullopt;
}

std::optional<int64_t> Loader::samples_per_epoch() const {
  return impl_->sampler ? std::optional(impl_->sampler->samples_on_rank()) : std::nullopt;
}

std::optional<int64_t> Loader::micro_batches_per_epoch() const {
  return impl_->sampler ? std::optional(impl_->sampler->batches()) : std::nullopt;
}

std::optional<int64_t> Loader::rounds_per_epoch() const {
  const auto all = micro_batches_per_epoch();
  const int64_t ranks = impl_->options.world_size;
  return all ? std::optional((*all + ranks - 1) / ranks) : std::nullopt;
}

int64_t Loader::epoch() const { return impl_->epoch; }
int64_t Loader::cursor() const { return impl_->cursor; }
int64_t Loader::bad_samples() const { return impl_->bad_samples; }
const DatasetInfo& Loader::info() const { return impl_->info; }
const LoaderOptions& Loader::options() const { return impl_->options; }

}  // namespace npu_train
