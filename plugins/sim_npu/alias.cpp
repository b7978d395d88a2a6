// Two tensors on the same memory: the host's view of a device tensor, for host kernels, and vice versa.
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <cstring>

#include "sim.hpp"

namespace npu_train::sim {
namespace {

at::Tensor with_storage(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like) {
  auto out = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  auto* impl = out.unsafeGetTensorImpl();
  impl->set_storage_offset(like.storage_offset());
  impl->set_sizes_and_strides(like.sizes(), like.strides());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  if (like.is_conj()) impl->_set_conj(true);  // both tensors have the same lazy conjugation and negation
  if (like.is_neg()) impl->_set_neg(true);
  return out;
}

void drop_storage(void* storage) { delete static_cast<c10::Storage*>(storage); }

}  // namespace

at::Tensor host_view(const at::Tensor& device) {
  const c10::Storage& storage = device.storage();
  void* pointer = host_pointer(storage.unsafeGetStorageImpl()->mutable_data());
  c10::Storage host(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
                                                          c10::DataPtr(pointer, new c10::Storage(storage), &drop_storage, c10::kCPU),
                                                          c10::GetCPUAllocator(), /*resizable=*/true));
  return with_storage(std::move(host), c10::DispatchKey::CPU, device);
}

at::Tensor device_tensor(const at::Tensor& host, c10::DeviceIndex device) {
  const c10::Storage& storage = host.storage();
  const size_t bytes = storage.nbytes();
  void* pointer = storage.unsafeGetStorageImpl()->mutable_data();
  c10::DataPtr memory = bytes == 0 ? c10::DataPtr(nullptr, c10::Device(kType, device))
                                   : adopt(c10::DataPtr(pointer, new c10::Storage(storage), &drop_storage, c10::kCPU), bytes, device);
  c10::Storage own(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, std::move(memory), device_allocator(),
                                                         /*resizable=*/true));
  return with_storage(std::move(own), c10::DispatchKey::PrivateUse1, host);
}

at::Tensor on_storage_of(const at::Tensor& device, const at::Tensor& like) {
  return with_storage(device.storage(), c10::DispatchKey::PrivateUse1, like);
}

void take_over(const at::Tensor& device, const at::Tensor& host) {
  auto* own = device.storage().unsafeGetStorageImpl();
  auto* other = host.storage().unsafeGetStorageImpl();
  if (host_pointer(own->mutable_data()) != other->mutable_data()) {  // a kernel has reallocated the storage
    const c10::Storage& storage = host.storage();
    own->set_data_ptr_noswap(adopt(c10::DataPtr(other->mutable_data(), new c10::Storage(storage), &drop_storage, c10::kCPU),
                                   storage.nbytes(), device.device().index()));
    own->set_nbytes(storage.nbytes());
  }
  auto* impl = device.unsafeGetTensorImpl();
  if (impl->sizes() != host.sizes() || impl->strides() != host.strides() || impl->storage_offset() != host.storage_offset()) {
    impl->set_storage_offset(host.storage_offset());
    impl->set_sizes_and_strides(host.sizes(), host.strides());
  }
}

void resize_storage(const c10::Storage& storage, size_t bytes) {
  auto* own = storage.unsafeGetStorageImpl();
  auto memory = device_allocator()->allocate(bytes);
  if (own->mutable_data() != nullptr && memory.get() != nullptr)
    std::memcpy(host_pointer(memory.get()), host_pointer(own->mutable_data()), std::min(bytes, own->nbytes()));
  own->set_data_ptr_noswap(std::move(memory));
  own->set_nbytes(bytes);
}

}  // namespace npu_train::sim
