// Random numbers of the host's generator, determined by seed and offset. They differ from those of a chip.
#include "operators.hpp"

using namespace sim_cann;

namespace {
at::Generator generator(int64_t seed, int64_t offset) {
  return at::detail::createCPUGenerator(static_cast<uint64_t>(seed) + 0x9e3779b97f4a7c15ULL * static_cast<uint64_t>(offset));
}
// Returns the generator of an operator in a graph. Each replay reads the seed and the offset from memory, and adds the offset within the
// graph.
at::Generator generator(const Tensor& seed, const Tensor& offset, int64_t in_graph) {
  return generator(seed.item<int64_t>(), offset.item<int64_t>() + in_graph);
}
}  // namespace
SIM_CANN_OPERATOR(InplaceNormal, [](Out self, float mean, float deviation, int64_t seed, int64_t offset) {
  self.get().normal_(mean, deviation, generator(seed, offset));
})
SIM_CANN_OPERATOR(NormalFloatFloat, [](float mean, float deviation, int64_t seed, int64_t offset, Out out) {
  out.get().normal_(mean, deviation, generator(seed, offset));
})
SIM_CANN_OPERATOR(NormalTensorFloat, [](Tensor mean, float deviation, int64_t seed, int64_t offset, Out out) {
  out = at::normal(mean, deviation, generator(seed, offset));
})
SIM_CANN_OPERATOR(NormalFloatTensor, [](float mean, Tensor deviation, int64_t seed, int64_t offset, Out out) {
  out = at::normal(mean, deviation, generator(seed, offset));
})
SIM_CANN_OPERATOR(NormalTensorTensor, [](Tensor mean, Tensor deviation, int64_t seed, int64_t offset, Out out) {
  out = at::normal(mean, deviation, generator(seed, offset));
})
SIM_CANN_OPERATOR(InplaceUniform, [](Out self, double from, double to, int64_t seed, int64_t offset) {
  self.get().uniform_(from, to, generator(seed, offset));
})
SIM_CANN_OPERATOR(InplaceRandom, [](Out self, int64_t from, int64_t to, int64_t seed, int64_t offset) {
  self.get().random_(from, to, generator(seed, offset));
})
// In a graph, seed and offset are tensors, and in_graph is added to the offset.
SIM_CANN_OPERATOR(InplaceNormalTensor, [](Out self, float mean, float deviation, Tensor seed, Tensor offset, int64_t in_graph) {
  self.get().normal_(mean, deviation, generator(seed, offset, in_graph));
})
SIM_CANN_OPERATOR(InplaceUniformTensor, [](Out self, double from, double to, Tensor seed, Tensor offset, int64_t in_graph) {
  self.get().uniform_(from, to, generator(seed, offset, in_graph));
})
SIM_CANN_OPERATOR(InplaceRandomTensor, [](Out self, int64_t from, int64_t to, Tensor seed, Tensor offset, int64_t in_graph) {
  self.get().random_(from, to, generator(seed, offset, in_graph));
})
SIM_CANN_OPERATOR(InplaceBernoulli,
                  [](Out self, Scalar p, int64_t seed, int64_t offset) { self.get().bernoulli_(p.toDouble(), generator(seed, offset)); })
SIM_CANN_OPERATOR(InplaceBernoulliTensor,
                  [](Out self, Tensor p, int64_t seed, int64_t offset) { self.get().bernoulli_(p, generator(seed, offset)); })
SIM_CANN_OPERATOR(Randperm, [](int64_t n, int64_t seed, int64_t offset, Out out) {
  out = at::randperm(n, generator(seed, offset), out.get().options());
})
SIM_CANN_OPERATOR(Multinomial, [](Tensor self, int64_t count, bool replacement, int64_t seed, int64_t offset, Out out) {
  out = at::multinomial(self, count, replacement, generator(seed, offset));
})

SIM_CANN_OPERATOR(MultinomialTensor, [](Tensor self, int64_t count, bool replacement, Tensor seed, Tensor offset, int64_t in_graph,
                                        Out out) { out = at::multinomial(self, count, replacement, generator(seed, offset, in_graph)); })

Tensor sim_cann::elements_of(const Tensor& mask, at::IntArrayRef sizes) {
  Tensor out = at::empty(sizes, at::kBool);
  const Tensor bytes = mask.contiguous();
  const auto* from = bytes.data_ptr<uint8_t>();
  auto* to = out.data_ptr<bool>();
  TORCH_CHECK(out.numel() <= bytes.numel() * 8, "the mask has ", bytes.numel(), " bytes for ", out.numel(), " elements");
  for (int64_t i = 0; i < out.numel(); ++i) to[i] = ((from[i / 8] >> (i % 8)) & 1) != 0;
  return out;
}

namespace {
// Packs a dropout mask into bits, one for each element, lowest first. `like` has as many bytes as a chip requires.
Tensor bits_of(const Tensor& keep, const Tensor& like) {
  Tensor out = at::zeros_like(like);
  auto* bytes = out.data_ptr<uint8_t>();
  const Tensor flat = keep.to(at::kByte).contiguous();
  const auto* bit = flat.data_ptr<uint8_t>();
  TORCH_CHECK(flat.numel() <= out.numel() * 8, "the mask has ", out.numel(), " bytes for ", flat.numel(), " elements");
  for (int64_t i = 0; i < flat.numel(); ++i) bytes[i / 8] = static_cast<uint8_t>(bytes[i / 8] | (bit[i] << (i % 8)));
  return out;
}

Tensor draw(at::IntArrayRef sizes, double p, const at::Generator& numbers) {
  return at::empty(sizes, at::kByte).bernoulli_(1 - p, numbers);
}
Tensor dropped(const Tensor& self, const Tensor& keep, double p) {
  if (p >= 1) return at::zeros_like(self);
  return at::where(keep.to(at::kBool), self / (1 - p), at::zeros({}, self.options()));
}
}  // namespace
SIM_CANN_OPERATOR(DropoutGenMaskV2, [](Ints sizes, double p, int64_t seed, int64_t offset, Dtype, Out mask) {
  mask = bits_of(draw(sizes, p, generator(seed, offset)), mask);
})
SIM_CANN_OPERATOR(DropoutGenMaskV2Tensor, [](Ints sizes, double p, Tensor seed, Tensor offset, int64_t in_graph, Dtype, Out mask) {
  mask = bits_of(draw(sizes, p, generator(seed, offset, in_graph)), mask);
})
SIM_CANN_OPERATOR(DropoutDoMask,
                  [](Tensor self, Tensor mask, double p, Out out) { out = dropped(self, elements_of(mask, self.sizes()), p); })
