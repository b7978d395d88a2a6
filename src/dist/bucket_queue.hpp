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
    bool early = true;      // buckets take further steps during the backward pass as data arrive, at points that differ between ranks
    int64_t in_flight = 0;  // maximum number of buckets in flight; 0: no limit. Without `early`, it applies only during the backward pass
  };
  // One exchange of all buckets; a window has one or more.
  struct Round {
    double unit = 1;  // factor that converts the scale of errors to that of the gradients
    bool last = true;
  };

  void set(Options options) { options_ = options; }
  // Sends complete buckets, and takes steps for which the data have arrived. Never waits, because another rank may send its next bucket
  // only after a layer of its backward pass, and this layer may wait for this rank.
  void send_complete(std::vector<Bucket>& buckets, Round round);
  // Like send_complete(), but returns only after bucket `b`, which is complete, has been sent. Blocks while the queue has no room for it.
  void send_until(std::vector<Bucket>& buckets, size_t b, Round round);
  size_t sent() const { return sent_; }
  // Takes all steps of all buckets, and ends the round. Blocks. If a bucket turns(), that bucket and all later ones take their last step
  // only after turn().
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
