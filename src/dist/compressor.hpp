// Compression of the gradients of one bucket.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

#include "dist/error_feedback.hpp"
#include "dist/flat_layout.hpp"
#include "dist/value_code.hpp"
#include "npu_train/dist/compression.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

class Compressor {
 public:
  struct Place {
    FlatBucket layout;
    const ParameterSet& parameters;
    ProcessGroup& group;
    bool between_devices;
    Sharding sharding;
    int64_t part_size() const { return layout.numel / group.size(); }
    const at::Tensor& parameter(const FlatPiece& piece) const { return parameters[piece.parameter].value; }
  };

  explicit Compressor(Place place) : place_(std::move(place)), error_(place_.layout.numel, place_.layout.options) {}
  virtual ~Compressor() = default;

  // Sends this rank's gradients plus the error, which `unit` rescales to the scale of the gradients. Never waits.
  virtual void send(const at::Tensor& flat, double unit) = 0;
  virtual bool arrived() = 0;
  // Whether everything that was sent has arrived.
  virtual bool done() = 0;
  // Adds the received data, and sends the sum. Blocks.
  virtual void pass_on() {}
  // Begins the second exchange of a method that exchanges twice (turns()), after the first messages of all buckets.
  virtual void turn() {}
  virtual bool turns() const { return false; }
  // Returns the sums [numel]; with shards the sums of this rank's part [numel / ranks].
  virtual at::Tensor finish() = 0;
  const ReductionTimes::Bucket& times() const { return times_; }
  // The ranks that compress.
  const ProcessGroup& group() const { return place_.group; }

  // Keeps the stored error of a piece whose sum is not used, because no rank has a gradient for it.
  virtual void keep(const FlatPiece& piece) { error_.keep(piece.offset, piece.numel); }
  // Called after a window; `taken`: whether the step of the window was taken.
  virtual void settle(bool taken) { error_.settle(taken); }

  // Returns this rank's error of a piece, 1-D.
  at::Tensor error(const FlatPiece& piece) const { return error_.value().narrow(0, piece.offset, piece.numel); }
  // Returns the error of a piece's sum in this rank's part, 1-D; undefined for a method without such an error.
  virtual at::Tensor error_of_sum(const FlatPiece& /*piece*/) const { return {}; }
  // Returns the state of a piece that is equal on all ranks; undefined for a method without such a state.
  virtual at::Tensor shared(const FlatPiece& /*piece*/) const { return {}; }
  // Resets all state to its initial value.
  virtual void reset() { error_.value().zero_(); }

 protected:
  at::Tensor of_part(const at::Tensor& all) const {
    return all.narrow(0, place_.group.rank() * place_.part_size(), place_.part_size()).clone();
  }
  Place place_;
  ErrorFeedback error_;  // for all elements of the bucket
  ReductionTimes::Bucket times_;
};

// Returns nullptr if no method with error feedback compresses the bucket, for example because its dtype is not fp32. If `begins` is false,
// compression has not begun yet: all elements are sent unchanged, including errors that were loaded.
std::unique_ptr<Compressor> make_compressor(const Compression& compression, bool begins, Compressor::Place place);

// Factories for each family of methods.
std::unique_ptr<Compressor> make_coded_elements(ValueCode code, Compressor::Place place);
std::unique_ptr<Compressor> make_largest_elements(const Compression& compression, Compressor::Place place);
std::unique_ptr<Compressor> make_low_rank(const Compression& compression, Compressor::Place place);

}  // namespace npu_train::detail
