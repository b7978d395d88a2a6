// Queue of buckets in a fixed order, in which every rank makes the calls of each sequence of collectives.
#pragma once

#include <cstdint>
#include <vector>

#include "dist/bucket.hpp"

namespace npu_train::detail {

class BucketQueue {
 public:
  struct Options {
    bool ordered = true;
    bool early = true;      // forwards received data during the backward pass, at points that differ between ranks
    int64_t in_flight = 0;  // maximum number of buckets; 0: no limit. Without `early` there is no limit after the backward pass
  };
  // A round of the buckets.
  struct Round {
    double unit = 1;  // factor from the scale of errors to that of the gradients
    bool last = true;
  };

  void set(Options options) { options_ = options; }
  // Sends complete buckets, and takes steps for which the data have arrived. Never waits: before another rank sends a bucket, its backward
  // pass may be in a layer that waits for this rank.
  void send_complete(std::vector<Bucket>& buckets, Round round);
  // Like send_complete(), until bucket `b`, which is complete, has been sent: blocks if other buckets must arrive before it.
  void send_until(std::vector<Bucket>& buckets, size_t b, Round round);
  size_t sent() const { return sent_; }
  // Takes all steps of all buckets, but not the last step of the first bucket that turns() and of those after it. Blocks; ends the round.
  void fold(std::vector<Bucket>& buckets, Round round);

 private:
  bool is_on_its_way(const Bucket& bucket) const;
  bool has_room(const std::vector<Bucket>& buckets) const;
  void make_room(std::vector<Bucket>& buckets, Round round);
  void advance(std::vector<Bucket>& buckets, Round round);

  Options options_;
  size_t sent_ = 0;
};

}  // namespace npu_train::detail
