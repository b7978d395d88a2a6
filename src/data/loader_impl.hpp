// Implementation of Loader: loader.cpp makes batches, loader_state.cpp saves and restores the position.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "data/batch_builder.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/data/image_stream.hpp"
#include "npu_train/data/loader.hpp"
#include "npu_train/data/sample_choice.hpp"

namespace npu_train {

struct Loader::Impl {
  Impl(std::shared_ptr<const Dataset> d, std::shared_ptr<IterableDataset> s, Pipeline pipeline, LoaderOptions o)
      : dataset(std::move(d)),
        stream(std::move(s)),
        images(dynamic_cast<ImageStream*>(stream.get())),
        options(std::move(o)),
        info(dataset != nullptr ? dataset->info() : stream->info()),
        builder(dataset, images != nullptr, std::move(pipeline), options, info),
        seed(options.seed) {
    if (dataset != nullptr) sampler.emplace(sampler_of(options.seed));
    chunk = options.num_workers > 0 ? std::clamp<int64_t>(options.batch_size / (2 * options.num_workers), 1, 64) : options.batch_size;
  }
  /// Starts the workers. This is not done in the constructor, so that the destructor joins the started workers if a later one cannot start.
  void launch() {
    for (int64_t i = 0; i < options.num_workers; ++i)
      workers.emplace_back([this, run = log_run()] {
        const ScopedLogRun scope(run);
        work();
      });
  }
  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    work_there.notify_all();
    for (auto& worker : workers) worker.join();
  }

  DistributedSampler sampler_of(uint64_t with_seed) const { return detail::sampler_of(options, dataset->size(), with_seed); }
  /// Returns the index within the epoch of this rank's micro-batch in a round.
  int64_t index_of(int64_t round) const { return first_batch + round * options.world_size + options.rank; }

  void work();
  void start(int64_t of_epoch, int64_t from_batch);
  void start_stream(int64_t of_epoch, int64_t from_batch);
  std::shared_ptr<detail::Job> open_next();
  void read_stream(detail::Job& job);
  bool pass_sample() const;
  std::shared_ptr<detail::Job> take_ready();
  bool may_open() const {
    return !opening && next_round < end && static_cast<int64_t>(jobs.size()) < options.num_workers * options.prefetch_factor;
  }
  std::shared_ptr<detail::Job> with_work_left() const;
  void note_bad_samples(const detail::Job& job);
  void report_bad_samples();
  void fail(detail::Job& job) const { job.error = std::current_exception(); }

  const std::shared_ptr<const Dataset> dataset;
  const std::shared_ptr<IterableDataset> stream;
  ImageStream* const images;  // stream if it has this type, else null
  const LoaderOptions options;
  const DatasetInfo info;
  const detail::BatchBuilder builder;
  int64_t chunk = 1;

  // State of the consumer:
  uint64_t seed;
  int64_t epoch = 0;
  int64_t cursor = 0;  // micro-batches consumed by all ranks
  bool begun = false;
  int64_t bad_samples = 0;  // in this epoch
  int64_t reported_bad = 0;
  int64_t named_bad = 0;     // in all epochs
  State stream_state;        // after the last returned batch
  bool loaded = false;       // stream_state was loaded from this rank's own state, and no epoch has begun since
  int64_t loaded_ranks = 0;  // number of ranks of the loaded state, until an epoch begins; 0: none

  // State shared with the workers:
  mutable std::mutex mutex;
  std::condition_variable work_there, batch_there;
  std::deque<std::shared_ptr<detail::Job>> jobs;  // open or ready, in order
  std::optional<DistributedSampler> sampler;      // empty for a stream
  uint64_t job_seed = 0;
  int64_t job_epoch = 0;
  int64_t first_batch = 0;          // first micro-batch of this epoch
  int64_t next_round = 0, end = 0;  // next round to open; round after the last. Both count from first_batch
  int64_t next_number = 0;          // number of the stream's next sample, over all ranks
  bool opening = false;             // a worker is in `open_next`, without the lock; only one may be, since batches open in order
  bool stop = false;
  std::vector<std::thread> workers;  // last member, because they use all of the above
};

}  // namespace npu_train
