#include "npu_train/io/tensor_file.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "io/tensors/npy_header.hpp"
#include "io/tensors/strided.hpp"
#include "io/tensors/tensor_size.hpp"
#include "io/tensors/torch_archive.hpp"

namespace npu_train {
namespace {

// Limit on the pickle and the directory of the archive: for one tensor, both have some hundred bytes.
constexpr uint64_t kLargestTensorPickle = uint64_t{64} << 10;
constexpr uint64_t kLargestTensorDirectory = uint64_t{64} << 10;
constexpr const char* kTensorName = "tensor";

const char* kind_name(detail::PickleValue::Kind kind) {
  using PickleKind = detail::PickleValue::Kind;
  switch (kind) {
    case PickleKind::Dict:
      return "a dict";
    case PickleKind::List:
      return "a list";
    case PickleKind::Tuple:
      return "a tuple";
    case PickleKind::Text:
      return "text";
    case PickleKind::None:
      return "None";
    default:
      return "something else";
  }
}

}  // namespace

struct TensorFile::State {
  explicit State(ReadableFile f) : file(std::move(f)) {}

  ReadableFile file;  // moved into the archive for a .pt
  std::unique_ptr<detail::TorchArchive> archive;
  std::string entry;         // entry of the archive that contains the storage
  bool whole_entry = false;  // the elements in storage order fill the entry exactly
  bool packed = false;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t numel = 0;
  uint64_t offset = 0;  // bytes from the start of the content to element 0
  uint64_t begin = 0;   // offset of the content in the file; unset if the entry is packed
  bool row_major = false;
  bool dense = false;

  // The tensor's memory range, which is loaded on demand for orders and entries that cannot be read directly from the file.
  mutable std::mutex loading;
  mutable std::unique_ptr<char[]> loaded;
  mutable const char* element0 = nullptr;

  const ReadableFile& source() const { return archive ? archive->zip().file() : file; }
  uint64_t element_size() const { return c10::elementSize(dtype); }

  void open_npy() {
    const auto header = detail::read_npy_header(file);
    dtype = header.dtype;
    sizes = strides = header.shape;
    if (header.fortran_order) std::reverse(strides.begin(), strides.end());
    strides = detail::contiguous_strides(strides);
    if (header.fortran_order) std::reverse(strides.begin(), strides.end());
    numel = static_cast<int64_t>((source().size() - header.data_begin) / element_size());
    begin = header.data_begin;
  }

  void open_pt() {
    const auto where = file.path().string();
    archive = std::make_unique<detail::TorchArchive>(
        std::move(file), detail::TorchArchive::Limits{.pickle = kLargestTensorPickle, .directory = kLargestTensorDirectory});
    const auto unpickler = archive->unpickle();
    const auto& root = unpickler.result();
    check(root.kind == detail::PickleValue::Kind::Tensor, ErrorKind::Data, "pth", where, ": contains ", kind_name(root.kind),
          ", not one tensor; hint: torch.save(tensor, path)");
    const auto& tensor = *root.tensor;
    dtype = tensor.dtype;
    sizes = tensor.size;
    numel = static_cast<int64_t>(detail::checked_numel(tensor, kTensorName, where, archive->zip().file().kind()));
    entry = archive->checked_storage(tensor, kTensorName);
    strides = numel > 0 ? tensor.stride : detail::contiguous_strides(sizes);
    offset = numel > 0 ? static_cast<uint64_t>(tensor.offset) * element_size() : 0;
    whole_entry = tensor.storage_size == numel && (numel == 0 || detail::is_dense_layout(sizes, strides));
    const auto stored = archive->zip().stored_at(entry);
    packed = !stored;
    begin = stored.value_or(0);
  }

  void finish_open() {
    row_major = numel == 0 || detail::is_row_major(sizes, strides);
    dense = numel == 0 || detail::is_dense_layout(sizes, strides);
  }

  void check_range(int64_t first, int64_t count) const {
    check(first >= 0 && count >= 0 && first <= numel && count <= numel - first, ErrorKind::Usage, "TensorFile", source().path().string(),
          ": ", count, " elements from ", first, " are required; the tensor has ", numel);
  }

  void load_once() const {
    const std::lock_guard lock(loading);
    if (loaded) return;
    const auto span = static_cast<uint64_t>(detail::spanned_elements(sizes, strides)) * element_size();
    const auto bytes = packed ? archive->zip().size(entry) : span;
    auto memory = std::make_unique_for_overwrite<char[]>(bytes);
    if (packed || whole_entry) {
      archive->zip().read(entry, memory.get());
    } else {
      source().read(begin + offset, memory.get(), bytes);
    }
    element0 = memory.get() + (packed ? offset : 0);
    loaded = std::move(memory);
  }

  // Reads elements in storage order if `in_order`, otherwise in row-major order.
  void read(int64_t first, int64_t count, void* out, bool in_order) const {
    if (count == 0) return;
    const auto size = element_size();
    const auto bytes = static_cast<uint64_t>(count) * size;
    if (in_order && !packed) {
      if (whole_entry && count == numel) {
        archive->zip().read(entry, out);
      } else {
        source().read(begin + offset + static_cast<uint64_t>(first) * size, out, bytes);
      }
    } else {
      load_once();
      if (in_order) {
        std::copy_n(element0 + static_cast<uint64_t>(first) * size, bytes, static_cast<char*>(out));
      } else {
        detail::gather(element0, sizes, strides, size, first, count, out);
      }
    }
    if (dtype == at::kBool) detail::make_bools(out, bytes);
  }
};

TensorFile::TensorFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
TensorFile::~TensorFile() = default;
TensorFile::TensorFile(TensorFile&&) noexcept = default;
TensorFile& TensorFile::operator=(TensorFile&&) noexcept = default;

TensorFile TensorFile::open(const std::filesystem::path& path) {
  return translated("TensorFile", [&] {
    auto state = std::make_unique<State>(ReadableFile(path, ErrorKind::Data));
    const auto start = state->file.read(0, std::min<uint64_t>(state->file.size(), detail::kNpyMagic.size()));
    if (start == detail::kNpyMagic) {
      state->open_npy();
    } else {
      state->open_pt();
    }
    state->finish_open();
    return TensorFile(std::move(state));
  });
}

const std::filesystem::path& TensorFile::path() const { return state_->source().path(); }
at::ScalarType TensorFile::dtype() const { return state_->dtype; }
const std::vector<int64_t>& TensorFile::sizes() const { return state_->sizes; }
const std::vector<int64_t>& TensorFile::strides() const { return state_->strides; }
int64_t TensorFile::numel() const { return state_->numel; }
bool TensorFile::streams() const { return state_->row_major && !state_->packed; }
bool TensorFile::is_dense() const { return state_->dense; }

void TensorFile::read(int64_t first, int64_t count, void* out) const {
  state_->check_range(first, count);
  translated("TensorFile", [&] { state_->read(first, count, out, state_->row_major); });
}

bool TensorFile::same_order_as(const TensorFile& other) const {
  return is_dense() && other.is_dense() && sizes() == other.sizes() &&
         detail::telling_strides(sizes(), strides()) == detail::telling_strides(other.sizes(), other.strides());
}

void TensorFile::read_storage_order(int64_t first, int64_t count, void* out) const {
  state_->check_range(first, count);
  check(is_dense(), ErrorKind::Usage, "TensorFile", path().string(),
        ": the elements do not fill their memory, so they have no storage order; hint: read() returns them in row-major order");
  translated("TensorFile", [&] { state_->read(first, count, out, true); });
}

}  // namespace npu_train
