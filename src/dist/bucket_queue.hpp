// Queue that sends buckets in one fixed order, so that all ranks call the collectives of each sequence in the same order.
#pragma once

#include <cstdint>
#include <vector>

#include "dist/bucket.hpp"

namespace npu_train::detail {

class BucketQueue {
 public:
  struct Options {
    bool ordered = true;
    bool early = true;      // takes further steps during the backward pass when data arrive, at points that differ between ranks
    int64_t in_flight = 0;  // maximum number of buckets in flight; 0: no limit. Without `early`, only the backward pass is limited
  };
  // One exchange of all buckets; a window has one or more.
  struct Round {
    double unit = 1;  // factor from the scale of errors to that of the gradients
    bool last = true;
  };

  void set(Options options) { options_ = options; }
  // Sends complete buckets, and takes steps for which the data have arrived. Never waits: before another rank sends a bucket, its backward
  // pass may be in a layer that waits for this rank.
  void send_complete(std::vector<Bucket>& buckets, Round round);
  // Like send_complete(), but returns only after bucket `b`, which is complete, has been sent. Blocks while the queue has no room for it.
  void send_until(std::vector<Bucket>& buckets, size_t b, Round round);
  size_t sent() const { return sent_; }
  // Takes all steps of all buckets; ends the round. Blocks. From the first bucket that turns() on, the last step is left until after
  // turn().
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
