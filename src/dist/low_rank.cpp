// Sends matrices as two factors of few columns (PowerSGD: Vogels et al. 2019, arXiv:1905.13727), with a warm start and error feedback. Each
// rank has a matrix M. P = M Q is added over ranks and made orthonormal; then Q = M^T P is added over ranks. P Q^T approximates the sum of
// M. The first message contains P of all matrices of the bucket, and all pieces that factors would not make smaller, unchanged. The second
// message contains Q.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "dist/coded_sum.hpp"
#include "dist/compressor.hpp"
#include "npu_train/core/hash.hpp"

namespace npu_train::detail {
namespace {

struct Matrix {
  FlatPiece piece;
  int64_t rows, columns, rank;
  at::Tensor start{}, q{}, next_q{}, own_q{}, p{}, content{};
};

// Makes the columns orthonormal, one after the other, in two passes each. A column in the span of the earlier columns becomes zero: only
// its rounding errors would remain, and these are not orthogonal to the earlier columns. Numbers that are not finite make the entire result
// NaN.
at::Tensor orthonormal(const at::Tensor& p) {
  constexpr double kSpanned = 1e-5;
  auto out = at::empty_like(p);
  for (int64_t i = 0; i < p.size(1); ++i) {
    auto column = p.select(1, i).clone();
    const auto before = column.norm();
    for (int pass = 0; pass < 2; ++pass) {
      if (i > 0) {
        const auto earlier = out.narrow(1, 0, i);
        column.sub_(at::mv(earlier, at::mv(earlier.t(), column)));
      }
      const auto norm = column.norm();
      const auto kept = pass == 0 ? norm > before * kSpanned : norm > 0;
      column.mul_(at::where(kept, norm.reciprocal(), 0.0));
    }
    out.select(1, i).copy_(column);
  }
  return out.add_(p.sum() * 0);
}

at::Tensor padded(const std::vector<at::Tensor>& pieces, int ranks) {
  const auto all = at::cat(pieces);
  const auto rest = all.numel() % ranks;
  return rest == 0 ? all : at::constant_pad_nd(all, {0, ranks - rest});
}

class LowRank final : public Compressor {
 public:
  LowRank(const Compression& compression, Place place)
      : Compressor(std::move(place)),
        first_(place_.group, ValueCode("fp32"), place_.between_devices),
        second_(place_.group, ValueCode("fp32"), place_.between_devices) {
    for (const auto& piece : place_.layout.pieces) {
      const auto& value = place_.parameter(piece);
      const auto rows = value.dim() > 1 ? value.size(0) : 0, columns = rows > 0 ? value.numel() / rows : 0;
      const auto rank = std::min({compression.rank, rows, columns});
      if (rank > 0 && (rows + columns) * rank < rows * columns)
        matrices_.push_back({.piece = piece, .rows = rows, .columns = columns, .rank = rank});
      else
        others_.push_back(piece);
    }
    for (auto& m : matrices_) {
      auto generator = at::make_generator<at::CPUGeneratorImpl>(hash64(place_.parameters[m.piece.parameter].name));
      m.start = at::randn({m.columns, m.rank}, generator).to(place_.layout.options.device());
      m.q = m.start.clone();
    }
  }

  void send(const at::Tensor& flat, double unit) override {
    own_ = error_.added_to(flat, unit);
    std::vector<at::Tensor> message;
    for (auto& m : matrices_) {
      m.content = content(own_, m);
      message.push_back(at::mm(m.content, m.q).view({-1}));
    }
    for (const auto& piece : others_) message.push_back(own_.narrow(0, piece.offset, piece.numel));
    first_.send(padded(message, place_.group.size()));
  }
  bool arrived() override { return first_.arrived(); }
  bool done() override { return first_.done() && second_.done(); }
  bool turns() const override { return true; }
  void pass_on() override { first_.gather(first_.add()); }

  void turn() override {
    const auto sums = first_.finish();
    times_ = first_.times();
    int64_t at = 0;
    std::vector<at::Tensor> message;
    for (auto& m : matrices_) {
      m.p = orthonormal(sums.narrow(0, at, m.rows * m.rank).view({m.rows, m.rank}));
      at += m.rows * m.rank;
      m.own_q = at::mm(m.content.t(), m.p);
      view(own_, m.piece).sub_(at::mm(m.p, m.own_q.t()).view(place_.parameter(m.piece).sizes()));
      m.content.reset();
      message.push_back(std::exchange(m.own_q, {}).reshape({-1}));
    }
    out_ = at::zeros({place_.layout.numel}, place_.layout.options);
    for (const auto& piece : others_) {
      out_.narrow(0, piece.offset, piece.numel).copy_(sums.narrow(0, at, piece.numel));
      at += piece.numel;
      own_.narrow(0, piece.offset, piece.numel).zero_();
    }
    error_.propose(std::exchange(own_, {}));
    if (!message.empty()) second_.send(padded(message, place_.group.size()));
  }

  at::Tensor finish() override {
    if (!matrices_.empty()) {
      second_.gather(second_.add());
      const auto sums = second_.finish();
      times_.bytes += second_.times().bytes;
      times_.gather.end = std::max(times_.gather.end, second_.times().gather.end);
      int64_t at = 0;
      for (auto& m : matrices_) {
        m.next_q = sums.narrow(0, at, m.columns * m.rank).view({m.columns, m.rank}).clone();
        at += m.columns * m.rank;
        view(out_, m.piece).copy_(at::mm(std::exchange(m.p, {}), m.next_q.t()).view(place_.parameter(m.piece).sizes()));
      }
    }
    const auto sums = std::exchange(out_, {});
    return place_.sharding == Sharding::None ? sums : of_part(sums);
  }

  void keep(const FlatPiece& piece) override {
    Compressor::keep(piece);
    if (auto* m = find(piece)) m->next_q = m->q;
  }
  void settle(bool taken) override {
    Compressor::settle(taken);
    for (auto& m : matrices_) {
      const auto next = std::exchange(m.next_q, {});
      // Restarts a column that has become zero, because it would stay zero.
      if (taken && next.defined()) m.q = at::where(next.norm(2, {0}, /*keepdim=*/true) == 0, m.start, next);
    }
  }
  at::Tensor shared(const FlatPiece& piece) const override {
    for (const auto& m : matrices_)
      if (m.piece.parameter == piece.parameter) return m.q;
    return {};
  }
  void reset() override {
    Compressor::reset();
    for (auto& m : matrices_) m.q = m.start.clone();
  }

 private:
  at::Tensor view(const at::Tensor& flat, const FlatPiece& piece) const { return FlatBucket::view(flat, piece, place_.parameter(piece)); }
  at::Tensor content(const at::Tensor& flat, const Matrix& m) const { return view(flat, m.piece).reshape({m.rows, m.columns}); }
  Matrix* find(const FlatPiece& piece) {
    const auto found =
        std::find_if(matrices_.begin(), matrices_.end(), [&](const Matrix& m) { return m.piece.parameter == piece.parameter; });
    return found == matrices_.end() ? nullptr : &*found;
  }

  std::vector<Matrix> matrices_;
  std::vector<FlatPiece> others_;  // sent unchanged
  CodedSum first_, second_;
  at::Tensor own_, out_;  // own_: this rank's gradients with the error, minus the sent part; out_: the sums
};

}  // namespace

std::unique_ptr<Compressor> make_low_rank(const Compression& compression, Compressor::Place place) {
  return std::make_unique<LowRank>(compression, std::move(place));
}

}  // namespace npu_train::detail
