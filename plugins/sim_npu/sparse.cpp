// Sparse (COO) tensors of a device. Their indices and values are dense tensors on the device.
#include <ATen/SparseTensorImpl.h>
#include <torch/library.h>

#include "sim.hpp"

namespace npu_train::sim {
namespace {

at::SparseTensorImpl* impl_of(const at::Tensor& sparse) { return static_cast<at::SparseTensorImpl*>(sparse.unsafeGetTensorImpl()); }

// Copies between the host and a device, or within one device.
at::Tensor& copy_sparse(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  TORCH_CHECK(self.is_sparse() && source.is_sparse(), "sim_npu: copy_ between a dense and a sparse tensor; hint: to_dense() first");
  const auto options = self.options().layout(at::kStrided);
  const Parts parts = parts_of(source);
  set_parts(self, source,
            {.indices = parts.indices.to(options.dtype(at::kLong), non_blocking, /*copy=*/true),
             .values = parts.values.to(options, non_blocking, /*copy=*/true)});
  return self;
}

}  // namespace

Parts parts_of(const at::Tensor& sparse) { return {impl_of(sparse)->indices(), impl_of(sparse)->values()}; }

void set_parts(const at::Tensor& sparse, const at::Tensor& like, const Parts& parts) {
  auto* impl = impl_of(sparse);
  impl->raw_resize_(impl_of(like)->sparse_dim(), impl_of(like)->dense_dim(), like.sizes());
  impl->set_indices_and_values_unsafe(parts.indices, parts.values);
  impl->set_coalesced(impl_of(like)->coalesced());
}

at::Tensor sparse_tensor(c10::DispatchKey key, const at::Tensor& like, const Parts& parts) {
  auto out = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(key), like.dtype());
  set_parts(out, like, parts);
  return out;
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) { m.impl("copy_", TORCH_FN(copy_sparse)); }

}  // namespace npu_train::sim
