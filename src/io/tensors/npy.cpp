#include "npu_train/io/npy.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "io/tensors/host_tensor.hpp"
#include "io/tensors/npy_header.hpp"
#include "io/tensors/tensor_size.hpp"

namespace npu_train {

void save_npy(const std::filesystem::path& path, const at::Tensor& tensor, Durability durability) {
  check(tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_quantized(), ErrorKind::Usage, "npy", path.string(),
        ": not a dense tensor");
  const auto type =
      std::find_if(detail::kNpyTypes.begin(), detail::kNpyTypes.end(), [&](const auto& t) { return t.second == tensor.scalar_type(); });
  check(type != detail::kNpyTypes.end(), ErrorKind::Usage, "npy", path.string(), ": NumPy has no dtype ",
        c10::toString(tensor.scalar_type()), "; hint: convert the tensor to float32 first");
  std::string shape;
  for (const auto extent : tensor.sizes()) shape += std::to_string(extent) + ", ";
  if (tensor.dim() > 1) shape.resize(shape.size() - 2);
  if (tensor.dim() == 1) shape.pop_back();
  std::string header = std::string("{'descr': '") + type->first + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  // The data are aligned to 64 bytes.
  const size_t before = detail::kNpyMagic.size() + 4;
  header.resize((before + header.size() + 1 + 63) / 64 * 64 - before - 1, ' ');
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  translated("npy", [&] {
    const auto host = detail::host_contiguous(tensor);
    AtomicFile file(path, durability);
    file.write(detail::kNpyMagic);
    file.write(std::string_view("\x01\x00", 2));
    file.write(&length, sizeof length);
    file.write(header);
    file.write(host.const_data_ptr(), host.nbytes());
    file.commit();
  });
}

at::Tensor load_npy(const std::filesystem::path& path) {
  const ReadableFile file(path, ErrorKind::Data);
  const auto header = detail::read_npy_header(file);
  return translated("npy", [&] {
    auto shape = header.shape;
    if (header.fortran_order) std::reverse(shape.begin(), shape.end());
    auto out = at::empty(shape, at::TensorOptions().dtype(header.dtype));
    file.read(header.data_begin, out.mutable_data_ptr(), out.nbytes());
    if (header.dtype == at::kBool) detail::make_bools(out.mutable_data_ptr(), out.nbytes());
    if (!header.fortran_order) return out;
    std::vector<int64_t> backwards(shape.size());
    std::iota(backwards.rbegin(), backwards.rend(), int64_t{0});
    return out.permute(backwards).contiguous();
  });
}

}  // namespace npu_train
