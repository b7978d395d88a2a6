#include "dist/bucket_queue.hpp"

#include <algorithm>
#include <cstddef>

namespace npu_train::detail {

// With `early`, a bucket between two of its steps counts as in flight, too.
bool BucketQueue::is_on_its_way(const Bucket& bucket) const {
  return !bucket.idle() || (options_.early && bucket.steps() < Bucket::kSteps);
}

bool BucketQueue::has_room(const std::vector<Bucket>& buckets) const {
  if (options_.in_flight == 0) return true;
  const auto end = buckets.begin() + static_cast<std::ptrdiff_t>(sent_);
  return std::count_if(buckets.begin(), end, [this](const Bucket& b) { return is_on_its_way(b); }) < options_.in_flight;
}

void BucketQueue::send_complete(std::vector<Bucket>& buckets, Round round) {
  if (options_.early && options_.in_flight > 0) advance(buckets, round);
  for (; sent_ < buckets.size() && buckets[sent_].complete() && has_room(buckets); ++sent_)
    buckets[sent_].exchange(options_.ordered, round.unit);
  if (options_.early) advance(buckets, round);
}

// Takes the steps for which data have arrived. No bucket takes more steps than any earlier one has taken. The limit is a minimum over
// all earlier buckets, because between groups an uncompressed bucket takes two steps at once and so gets ahead of those before it.
void BucketQueue::advance(std::vector<Bucket>& buckets, Round round) {
  int most = Bucket::kSteps;
  for (size_t b = 0; b < sent_; ++b) {
    while (buckets[b].steps() < most && buckets[b].ready()) buckets[b].step(options_.ordered, round.last);
    most = std::min(most, buckets[b].steps());
  }
}

void BucketQueue::send_until(std::vector<Bucket>& buckets, size_t b, Round round) {
  send_complete(buckets, round);
  while (sent_ <= b) {
    if (options_.early)
      make_room(buckets, round);
    else
      buckets[sent_++].exchange(options_.ordered, round.unit);
    send_complete(buckets, round);
  }
}

// Finishes the oldest bucket in flight.
void BucketQueue::make_room(std::vector<Bucket>& buckets, Round round) {
  const auto end = buckets.begin() + static_cast<std::ptrdiff_t>(sent_);
  const auto oldest = std::find_if(buckets.begin(), end, [this](const Bucket& b) { return is_on_its_way(b); });
  if (oldest == end) return;
  while (oldest->steps() < Bucket::kSteps) oldest->step(options_.ordered, round.last);
  if (round.last) oldest->wait();
}

// Without a limit, all buckets take a step before any bucket waits for its next one. With a limit, another rank may wait for the end of a
// bucket before it sends the next one, so each bucket takes all steps before the next one does.
void BucketQueue::fold(std::vector<Bucket>& buckets, Round round) {
  const bool limited = options_.early && options_.in_flight > 0;
  for (int steps = limited ? Bucket::kSteps : 1; steps <= Bucket::kSteps; ++steps)
    for (auto& b : buckets) {
      if (steps == Bucket::kSteps && b.turns()) break;  // later buckets must not overtake this one
      while (b.steps() < steps) b.step(options_.ordered, round.last);
      if (options_.early) advance(buckets, round);
    }
  for (auto& b : buckets) b.begin_round();
  sent_ = 0;
}

}  // namespace npu_train::detail
