// Buckets on their way, in one fixed order: every rank makes the calls of each sequence of collectives in it.
#pragma once

#include <cstdint>
#include <vector>

#include "dist/bucket.hpp"

namespace npu_train::detail {

class BucketQueue {
 public:
  struct Options {
    bool ordered = true;
    bool early = true;      // what has arrived is sent on while the backward pass runs, after gradients that differ by rank
    int64_t in_flight = 0;  // at most; 0: no limit. After the backward pass there is none unless `early`
  };
  // Of a round of the buckets.
  struct Round {
    double unit = 1;  // of errors, in that of the gradients
    bool last = true;
  };

  void set(Options options) { options_ = options; }
  // Sends buckets that are complete, and what has arrived on. Never waits: the backward pass of another rank may wait for this one, in a
  // layer of its own, before it sends the bucket.
  void send_complete(std::vector<Bucket>& buckets, Round round);
  // The same until bucket `b`, which is complete, has been sent: waits where others must arrive before it.
  void send_until(std::vector<Bucket>& buckets, size_t b, Round round);
  size_t sent() const { return sent_; }
  // Takes the steps of all buckets, except for the last one from the first bucket on that turns. Waits. The next round may begin.
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
