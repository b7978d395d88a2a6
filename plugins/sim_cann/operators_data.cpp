// Reductions, and operators that move elements.
#include "operators.hpp"

using namespace sim_cann;

namespace {

const char* reduction_of(int64_t number) {
  TORCH_CHECK(number == 1 || number == 2, "reduction ", number, "; allowed: 1 (add) and 2 (multiply)");
  return number == 1 ? "add" : "multiply";
}
Tensor scattered(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, int64_t reduction) {
  const Tensor at = index.to(at::kLong);
  return reduction == 0 ? at::scatter(self, dim, at, source) : at::scatter(self, dim, at, source, reduction_of(reduction));
}
Tensor scattered(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value, int64_t reduction) {
  const Tensor at = index.to(at::kLong);
  return reduction == 0 ? at::scatter(self, dim, at, value) : at::scatter(self, dim, at, value, reduction_of(reduction));
}
// For an absent index, as in x[:, i], torch_npu passes an empty tensor, which usually has the dtype of the indexed tensor.
c10::List<std::optional<Tensor>> indices_of(const Tensors& list) {
  bool any = false;
  for (const auto& t : list) any |= t.defined() && t.numel() > 0;
  c10::List<std::optional<Tensor>> out;
  for (const auto& t : list) {
    const bool empty = t.defined() && t.dim() == 1 && t.numel() == 0;
    const bool absent = !t.defined() || (empty && (any || t.is_floating_point()));
    out.push_back(absent ? std::optional<Tensor>() : std::optional<Tensor>(t.scalar_type() == at::kInt ? t.to(at::kLong) : t));
  }
  return out;
}

}  // namespace

// ---- Reductions ----

SIM_CANN_OPERATOR(ReduceSum, [](Tensor self, Ints dims, bool keep, Dtype dtype, Out out) { out = at::sum(self, dims, keep, dtype.value); })
SIM_CANN_OPERATOR(ReduceNansum,
                  [](Tensor self, Ints dims, bool keep, Dtype dtype, Out out) { out = at::nansum(self, dims, keep, dtype.value); })
SIM_CANN_OPERATOR(Mean, [](Tensor self, Ints dims, bool keep, Dtype dtype, Out out) { out = at::mean(self, dims, keep, dtype.value); })
SIM_CANN_OPERATOR(Prod, [](Tensor self, Dtype dtype, Out out) { out = at::prod(self, dtype.value); })
SIM_CANN_OPERATOR(ProdDim, [](Tensor self, int64_t dim, bool keep, Dtype dtype, Out out) { out = at::prod(self, dim, keep, dtype.value); })
SIM_CANN_OPERATOR(Amax, [](Tensor self, Ints dims, bool keep, Out out) { out = at::amax(self, dims, keep); })
SIM_CANN_OPERATOR(Amin, [](Tensor self, Ints dims, bool keep, Out out) { out = at::amin(self, dims, keep); })
SIM_CANN_OPERATOR(Max, [](Tensor self, Out out) { out = at::max(self); })
SIM_CANN_OPERATOR(Min, [](Tensor self, Out out) { out = at::min(self); })
SIM_CANN_OPERATOR(MaxDim, [](Tensor self, int64_t dim, bool keep, Out values, Out indices) {
  const auto [v, i] = at::max(self, dim, keep);
  values = v;
  indices = i;
})
SIM_CANN_OPERATOR(MinDim, [](Tensor self, int64_t dim, bool keep, Out values, Out indices) {
  const auto [v, i] = at::min(self, dim, keep);
  values = v;
  indices = i;
})
SIM_CANN_OPERATOR(Aminmax, [](Tensor self, Ints dims, bool keep, Out min, Out max) {
  min = at::amin(self, dims, keep);
  max = at::amax(self, dims, keep);
})
SIM_CANN_OPERATOR(ArgMax, [](Tensor self, int64_t dim, bool keep, Out out) { out = at::argmax(self, dim, keep); })
SIM_CANN_OPERATOR(ArgMin, [](Tensor self, int64_t dim, bool keep, Out out) { out = at::argmin(self, dim, keep); })
SIM_CANN_OPERATOR(All, [](Tensor self, Ints dims, bool keep, Out out) { out = at::all(self, dims, keep); })
SIM_CANN_OPERATOR(Any, [](Tensor self, Ints dims, bool keep, Out out) { out = at::any(self, dims, keep); })
SIM_CANN_OPERATOR(Norm, [](Tensor self, Scalar p, Ints dims, bool keep, Out out) { out = at::norm(self, p, dims, keep); })
SIM_CANN_OPERATOR(LinalgVectorNorm, [](Tensor self, Scalar p, Ints dims, bool keep, Dtype dtype, Out out) {
  out = at::linalg_vector_norm(self, p, dims.empty() ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(dims), keep, dtype.value);
})
SIM_CANN_OPERATOR(LogSumExp, [](Tensor self, Ints dims, bool keep, Out out) { out = at::logsumexp(self, dims, keep); })
SIM_CANN_OPERATOR(Std, [](Tensor self, Ints dims, int64_t correction, bool keep, Out out) {
  out = at::std(self, at::OptionalIntArrayRef(dims), Scalar(correction), keep);
})
SIM_CANN_OPERATOR(VarCorrection, [](Tensor self, Ints dims, int64_t correction, bool keep, Out out) {
  out = at::var(self, at::OptionalIntArrayRef(dims), Scalar(correction), keep);
})
SIM_CANN_OPERATOR(VarMean, [](Tensor self, Ints dims, int64_t correction, bool keep, Out variance, Out mean) {
  const auto [v, m] = at::var_mean(self, at::OptionalIntArrayRef(dims), Scalar(correction), keep);
  variance = v;
  mean = m;
})
SIM_CANN_OPERATOR(StdMeanCorrection, [](Tensor self, Ints dims, int64_t correction, bool keep, Out deviation, Out mean) {
  const auto [s, m] = at::std_mean(self, at::OptionalIntArrayRef(dims), Scalar(correction), keep);
  deviation = s;
  mean = m;
})
SIM_CANN_OPERATOR(Cumsum, [](Tensor self, int64_t dim, Dtype dtype, Out out) { out = at::cumsum(self, dim, dtype.value); })
SIM_CANN_OPERATOR(Cumprod, [](Tensor self, Scalar dim, Dtype dtype, Out out) { out = at::cumprod(self, dim.toLong(), dtype.value); })
SIM_CANN_OPERATOR(Sort, [](Tensor self, bool stable, int64_t dim, bool descending, Out values, Out indices) {
  const auto [v, i] = at::sort(self, std::optional(stable), dim, descending);
  values = v;
  indices = i;
})
SIM_CANN_OPERATOR(Topk, [](Tensor self, int64_t k, int64_t dim, bool largest, bool sorted, Out values, Out indices) {
  const auto [v, i] = at::topk(self, k, dim, largest, sorted);
  values = v;
  indices = i;
})
SIM_CANN_OPERATOR(Trace, [](Tensor self, Out out) { out = at::trace(self); })
SIM_CANN_OPERATOR(Bincount, [](Tensor self, Tensor weights, int64_t length, Out out) {
  out = at::bincount(self, weights.defined() ? std::optional<Tensor>(weights) : std::nullopt, length);
})

// ---- Moving elements ----

SIM_CANN_OPERATOR(Cat, [](Tensors tensors, int64_t dim, Out out) { out = at::cat(tensors, dim); })
SIM_CANN_OPERATOR(Stack, [](Tensors tensors, int64_t dim, Out out) { out = at::stack(tensors, dim); })
SIM_CANN_OPERATOR(IndexSelect, [](Tensor self, int64_t dim, Tensor index, Out out) { out = at::index_select(self, dim, index); })
SIM_CANN_OPERATOR(Gather, [](Tensor self, int64_t dim, Tensor index, Out out) { out = at::gather(self, dim, index.to(at::kLong)); })
SIM_CANN_OPERATOR(Take, [](Tensor self, Tensor index, Out out) { out = at::take(self, index.to(at::kLong)); })
SIM_CANN_OPERATOR(Scatter, [](Tensor self, int64_t dim, Tensor index, Tensor source, int64_t reduction, Out out) {
  out = scattered(self, dim, index, source, reduction);
})
SIM_CANN_OPERATOR(InplaceScatter, [](Out self, int64_t dim, Tensor index, Tensor source, int64_t reduction) {
  self = scattered(self, dim, index, source, reduction);
})
SIM_CANN_OPERATOR(ScatterValue, [](Tensor self, int64_t dim, Tensor index, Scalar value, int64_t reduction, Out out) {
  out = scattered(self, dim, index, value, reduction);
})
SIM_CANN_OPERATOR(InplaceScatterValue, [](Out self, int64_t dim, Tensor index, Scalar value, int64_t reduction) {
  self = scattered(self, dim, index, value, reduction);
})
SIM_CANN_OPERATOR(ScatterAdd, [](Tensor self, int64_t dim, Tensor index, Tensor source, Out out) {
  out = at::scatter_add(self, dim, index.to(at::kLong), source);
})
SIM_CANN_OPERATOR(IndexAdd, [](Tensor self, int64_t dim, Tensor index, Tensor source, Scalar alpha, Out out) {
  out = at::index_add(self, dim, index, source, alpha);
})
SIM_CANN_OPERATOR(IndexCopy, [](Tensor self, int64_t dim, Tensor index, Tensor source, Out out) {
  out = at::index_copy(self, dim, index.to(at::kLong), source);
})
SIM_CANN_OPERATOR(InplaceIndexCopy,
                  [](Out self, int64_t dim, Tensor index, Tensor source) { self = at::index_copy(self, dim, index.to(at::kLong), source); })
SIM_CANN_OPERATOR(IndexFill, [](Tensor self, int64_t dim, Tensor index, Scalar value, Out out) {
  out = at::index_fill(self, dim, index.to(at::kLong), value);
})
SIM_CANN_OPERATOR(InplaceIndexFill,
                  [](Out self, int64_t dim, Tensor index, Scalar value) { self = at::index_fill(self, dim, index.to(at::kLong), value); })
SIM_CANN_OPERATOR(Index, [](Tensor self, Tensors indices, Out out) { out = at::index(self, indices_of(indices)); })
SIM_CANN_OPERATOR(IndexPutImpl, [](Out self, Tensors indices, Tensor value, bool accumulate, bool) {
  self.get().index_put_(indices_of(indices), value, accumulate);
})
SIM_CANN_OPERATOR(MaskedSelect, [](Tensor self, Tensor mask, Found out) { out = at::masked_select(self, mask); })
SIM_CANN_OPERATOR(Nonzero, [](Tensor self, Found out) { out = at::nonzero(self); })
SIM_CANN_OPERATOR(NonzeroV2, [](Tensor self, Found out) { out = at::nonzero(self).t(); })
SIM_CANN_OPERATOR(Flip, [](Tensor self, Ints dims, Out out) { out = at::flip(self, dims); })
SIM_CANN_OPERATOR(Roll, [](Tensor self, Ints shifts, Ints dims, Out out) { out = at::roll(self, shifts, dims); })
SIM_CANN_OPERATOR(Repeat, [](Tensor self, Ints repeats, Out out) { out = self.repeat(repeats); })
SIM_CANN_OPERATOR(RepeatInterleaveInt, [](Tensor self, int64_t repeats, int64_t, Out out) { out = at::repeat_interleave(self, repeats); })
SIM_CANN_OPERATOR(RepeatInterleaveIntWithDim,
                  [](Tensor self, int64_t repeats, int64_t dim, int64_t, Out out) { out = at::repeat_interleave(self, repeats, dim); })
SIM_CANN_OPERATOR(Tril, [](Tensor self, int64_t diagonal, Out out) { out = at::tril(self, diagonal); })
SIM_CANN_OPERATOR(Triu, [](Tensor self, int64_t diagonal, Out out) { out = at::triu(self, diagonal); })
SIM_CANN_OPERATOR(InplaceTril, [](Out self, int64_t diagonal) { self = at::tril(self, diagonal); })
SIM_CANN_OPERATOR(InplaceTriu, [](Out self, int64_t diagonal) { self = at::triu(self, diagonal); })
SIM_CANN_OPERATOR(ConstantPadNd, [](Tensor self, Ints pad, Scalar value, Out out) { out = at::constant_pad_nd(self, pad, value); })

// Defines an operator that fills the borders as ATen's operator does.
#define SIM_CANN_PAD(name, aten)                                                             \
  SIM_CANN_OPERATOR(name, [](Tensor self, Ints pad, Out out) { out = at::aten(self, pad); }) \
  SIM_CANN_OPERATOR(name##Backward, [](Tensor grad, Tensor self, Ints pad, Out out) { out = at::aten##_backward(grad, self, pad); })
SIM_CANN_PAD(ReflectionPad1d, reflection_pad1d)
SIM_CANN_PAD(ReflectionPad2d, reflection_pad2d)
SIM_CANN_PAD(ReflectionPad3d, reflection_pad3d)
SIM_CANN_PAD(ReplicationPad1d, replication_pad1d)
SIM_CANN_PAD(ReplicationPad2d, replication_pad2d)
SIM_CANN_PAD(ReplicationPad3d, replication_pad3d)
