// Attention by its definition: the complete matrix of weights is computed, also in the backward pass.
#include <limits>

#include "operators.hpp"

using namespace sim_cann;

namespace {

/// The layout of query, key and value, from the caller's text: B batches, S positions, N heads, D features, H = N * D.
struct Layout {
  std::string text;
  int64_t heads;  // number of the query's heads

  /// Returns [B, N, S, D] in fp32.
  Tensor heads_of(const Tensor& t, int64_t features) const {
    const Tensor x = t.to(at::kFloat);
    if (text == "BNSD") return x;
    if (text == "BSND") return x.transpose(1, 2);
    if (text == "BSH") return x.unflatten(2, {-1, features}).transpose(1, 2);
    if (text == "SBH") return x.unflatten(2, {-1, features}).permute({1, 2, 0, 3});
    TORCH_CHECK(false, "layout ", text, "; sim_cann has BNSD, BSND, BSH and SBH");
  }
  Tensor back(const Tensor& x) const {
    if (text == "BNSD") return x;
    if (text == "BSND") return x.transpose(1, 2);
    if (text == "BSH") return x.transpose(1, 2).flatten(2);
    return x.permute({2, 0, 1, 3}).flatten(2);
  }
  int64_t features_of(const Tensor& query) const { return text.size() == 4 ? query.size(-1) : query.size(-1) / heads; }
};

struct Attention {
  Tensor query, key, value;  // [B, N, S, D]; key and value repeated for every head of the query
  Tensor weights;            // [B, N, Sq, Sk], after softmax
  Tensor kept;               // weights after dropout
  Tensor largest, sum;       // [B, N, Sq, 1]: the largest score, and the sum of the exponentials
  Tensor keep;               // dropout mask; undefined without dropout
  int64_t repeats = 1;
};

// Returns a mask that is true where there is no attention: the caller's mask in modes 0 and 1, a triangle in modes 2 and 3. The triangle is
// aligned to the first position in mode 2, and to the last one in mode 3.
Tensor masked_out(const Tensor& mask, int64_t mode, int64_t rows, int64_t columns, int64_t before, int64_t after) {
  TORCH_CHECK(mode >= 0 && mode <= 3, "sparse mode ", mode, "; sim_cann has 0 to 3");
  const auto all = at::ones({rows, columns}, at::kBool);
  if (mode == 2) return at::triu(all, 1);
  if (mode == 3) return at::triu(all, columns - rows + 1);
  if (!mask.defined()) {
    TORCH_CHECK(mode == 1 || (before >= rows && after >= columns), "a window of positions (pre_tokens, next_tokens) without a mask");
    return {};
  }
  return mask.to(at::kBool);
}

Attention attend(const Layout& layout, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias, const Tensor& bits,
                 const Tensor& mask, double scale, double keep_probability, int64_t before, int64_t after, int64_t mode) {
  TORCH_CHECK(!bias.defined(), "a position bias (pse) is not played");
  Attention a;
  const int64_t features = layout.features_of(query);
  a.query = layout.heads_of(query, features);
  const Tensor k = layout.heads_of(key, features);
  const int64_t value_features = layout.text.size() == 4 ? value.size(-1) : value.size(-1) / k.size(1);
  const Tensor v = layout.heads_of(value, value_features);
  a.repeats = a.query.size(1) / k.size(1);
  a.key = a.repeats == 1 ? k : k.repeat_interleave(a.repeats, 1);
  a.value = a.repeats == 1 ? v : v.repeat_interleave(a.repeats, 1);
  Tensor scores = at::matmul(a.query, a.key.transpose(-1, -2)) * scale;
  const Tensor out = masked_out(mask, mode, scores.size(-2), scores.size(-1), before, after);
  if (out.defined()) scores = scores.masked_fill(out, -std::numeric_limits<float>::infinity());
  a.largest = at::amax(scores, {-1}, true);
  a.largest = a.largest.masked_fill(at::isneginf(a.largest), 0);  // a row that attends to no position
  const Tensor e = at::exp(scores - a.largest);
  a.sum = e.sum(-1, true);
  a.weights = at::where(a.sum == 0, at::zeros({}), e / a.sum);
  a.kept = a.weights;
  if (bits.defined() && keep_probability < 1) {
    a.keep = elements_of(bits, scores.sizes());
    a.kept = a.weights * a.keep / keep_probability;
  }
  return a;
}

/// Returns the gradients of query, key and value.
std::tuple<Tensor, Tensor, Tensor> attend_backward(const Attention& a, const Tensor& grad, double scale, double keep_probability) {
  Tensor dweights = at::matmul(grad, a.value.transpose(-1, -2));
  if (a.keep.defined()) dweights = dweights * a.keep / keep_probability;
  const Tensor dscores = a.weights * (dweights - (dweights * a.weights).sum(-1, true)) * scale;
  const auto grouped = [&](const Tensor& t) { return a.repeats == 1 ? t : t.unflatten(1, {-1, a.repeats}).sum(2); };
  return {at::matmul(dscores, a.key), grouped(at::matmul(dscores.transpose(-1, -2), a.query)),
          grouped(at::matmul(a.kept.transpose(-1, -2), grad))};
}

void forward(const Layout& layout, const Attention& a, const Out& largest, const Out& sum, const Out& out) {
  out = layout.back(at::matmul(a.kept, a.value));
  if (largest.asked() && largest.get().numel() > 0) largest = a.largest.expand_as(largest.get());
  if (sum.asked() && sum.get().numel() > 0) sum = a.sum.expand_as(sum.get());
}

}  // namespace

SIM_CANN_OPERATOR(FlashAttentionScore, [](Tensor query, Tensor key, Tensor value, Tensor bias, Tensor bits, Tensor, Tensor mask, Ints,
                                          double scale, double keep, int64_t before, int64_t after, int64_t heads, Text text, int64_t,
                                          int64_t mode, Out largest, Out sum, Out, Out out) {
  const Layout layout{text, heads};
  forward(layout, attend(layout, query, key, value, bias, bits, mask, scale, keep, before, after, mode), largest, sum, out);
})
SIM_CANN_OPERATOR(FlashAttentionScoreV2, [](Tensor query, Tensor key, Tensor value, Tensor bias, Tensor bits, Tensor, Tensor mask, Ints,
                                            Ints, Ints, double scale, double keep, int64_t before, int64_t after, int64_t heads, Text text,
                                            int64_t, int64_t mode, int64_t, Out largest, Out sum, Out, Out out) {
  const Layout layout{text, heads};
  forward(layout, attend(layout, query, key, value, bias, bits, mask, scale, keep, before, after, mode), largest, sum, out);
})

namespace {
void backward(const Layout& layout, const Attention& a, const Tensor& grad, double scale, double keep, const Out& dq, const Out& dk,
              const Out& dv) {
  const auto [q, k, v] = attend_backward(a, layout.heads_of(grad, a.value.size(-1)), scale, keep);
  dq = layout.back(q);
  dk = layout.back(k);
  dv = layout.back(v);
}
}  // namespace

SIM_CANN_OPERATOR(FlashAttentionScoreGrad, [](Tensor query, Tensor key, Tensor value, Tensor grad, Tensor bias, Tensor bits, Tensor,
                                              Tensor mask, Tensor, Tensor, Tensor, Tensor, Ints, double scale, double keep, int64_t before,
                                              int64_t after, int64_t heads, Text text, int64_t, int64_t mode, Out dq, Out dk, Out dv, Out) {
  const Layout layout{text, heads};
  backward(layout, attend(layout, query, key, value, bias, bits, mask, scale, keep, before, after, mode), grad, scale, keep, dq, dk, dv);
})
SIM_CANN_OPERATOR(FlashAttentionScoreGradV2, [](Tensor query, Tensor key, Tensor value, Tensor grad, Tensor bias, Tensor bits, Tensor,
                                                Tensor mask, Tensor, Tensor, Tensor, Tensor, Ints, Ints, Ints, double scale, double keep,
                                                int64_t before, int64_t after, int64_t heads, Text text, int64_t, int64_t mode, int64_t,
                                                Out dq, Out dk, Out dv, Out) {
  const Layout layout{text, heads};
  backward(layout, attend(layout, query, key, value, bias, bits, mask, scale, keep, before, after, mode), grad, scale, keep, dq, dk, dv);
})
