// How the gradients of one bucket are compressed on their way to the sums.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

#include "dist/carried_error.hpp"
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

  // This rank's gradients, to which the error is added: one of its units is `unit` of theirs. Never waits.
  virtual void send(const at::Tensor& flat, double unit) = 0;
  virtual bool arrived() = 0;
  // Whether everything that was sent has arrived.
  virtual bool done() = 0;
  // What has arrived is added, and sent on. Waits.
  virtual void pass_on() {}
  // After the first messages of all buckets: those who exchange twice begin the second one.
  virtual void turn() {}
  virtual bool turns() const { return false; }
  // The sums [numel]; with shards those of this rank's part [numel / ranks].
  virtual at::Tensor finish() = 0;
  const ReductionTimes::Bucket& times() const { return times_; }
  // Those who compress.
  const ProcessGroup& group() const { return place_.group; }

  // No rank has a gradient of the piece, so its sum is not used.
  virtual void keep(const FlatPiece& piece) { error_.keep(piece.offset, piece.numel); }
  // Whether the step of the window was taken.
  virtual void settle(bool taken) { error_.settle(taken); }

  // This rank's error of a piece, 1-D.
  at::Tensor error(const FlatPiece& piece) const { return error_.value().narrow(0, piece.offset, piece.numel); }
  // The error of its sum, in this rank's part, 1-D; undefined for a method without one.
  virtual at::Tensor error_of_sum(const FlatPiece& /*piece*/) const { return {}; }
  // What all ranks share of a piece; undefined for a method that has nothing.
  virtual at::Tensor shared(const FlatPiece& /*piece*/) const { return {}; }
  // As at the start.
  virtual void reset() { error_.value().zero_(); }

 protected:
  at::Tensor of_part(const at::Tensor& all) const {
    return all.narrow(0, place_.group.rank() * place_.part_size(), place_.part_size()).clone();
  }
  Place place_;
  CarriedError error_;  // of the elements of the bucket
  ReductionTimes::Bucket times_;
};

// nullptr for a bucket whose elements are not compressed by a method that carries errors: those of a dtype other than fp32. Until
// compression `begins`, all elements travel as they are, and errors that were loaded with them.
std::unique_ptr<Compressor> make_compressor(const Compression& compression, bool begins, Compressor::Place place);

// One for each family.
std::unique_ptr<Compressor> make_coded_elements(ValueCode code, Compressor::Place place);
std::unique_ptr<Compressor> make_largest_elements(const Compression& compression, Compressor::Place place);
std::unique_ptr<Compressor> make_low_rank(const Compression& compression, Compressor::Place place);

}  // namespace npu_train::detail
