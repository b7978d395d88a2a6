#include "npu_train/io/pickle.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "io/tensors/legacy_torch.hpp"
#include "io/tensors/tensor_size.hpp"
#include "io/tensors/torch_archive.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

using detail::PickledTensor;
using detail::PickleValue;
using Kind = PickleValue::Kind;

constexpr uint64_t kLargestPickle = uint64_t{64} << 20;
constexpr uint64_t kLargestDirectory = uint64_t{256} << 20;
constexpr size_t kMostLeaves = 1'000'000;
constexpr size_t kMostNameBytes = size_t{128} << 20;
constexpr size_t kDeepestPickle = 64;
constexpr uint64_t kMostExpanded = uint64_t{1} << 26;  // total elements of tensors that are larger than their storages

// Reads storages of tensors; `name` is used in messages. check_size() runs before memory of the claimed size is allocated.
struct StorageReader {
  std::function<void(const PickledTensor&, const std::string& name)> check_size;
  std::function<void(const PickledTensor&, const std::string& name, void* out)> read;
};

/// Flattens the pickle's value and creates its tensors from the file's storages.
class Collector {
 public:
  Collector(StorageReader storages, std::string source) : reader_(std::move(storages)), source_(std::move(source)) {}

  PthFile collect(const PickleValue& root) {
    visit(root, "", 0);
    return std::move(out_);
  }

 private:
  template <class... Parts>
  void require(bool ok, const Parts&... parts) const {
    check(ok, ErrorKind::Checkpoint, "pth", source_, ": ", parts...);
  }

  static std::string child(const std::string& path, const std::string& name) { return path.empty() ? name : path + "." + name; }

  void visit(const PickleValue& value, const std::string& path, size_t depth) {
    require(depth <= kDeepestPickle, "nesting deeper than ", kDeepestPickle, " levels");
    require(++visited_ <= kMostLeaves, "more than ", kMostLeaves, " values");
    name_bytes_ += path.size();
    require(name_bytes_ <= kMostNameBytes, "the names exceed 128 MiB in total");
    switch (value.kind) {
      case Kind::Dict:
        for (size_t i = 0; i < value.items.size(); i += 2) {
          const auto before = out_.tensors.size();
          visit(*value.items[i + 1], child(path, key_text(*value.items[i])), depth + 1);
          require(has_name(*value.items[i]) || out_.tensors.size() == before, "a tensor in '", path,
                  "' has a key that is neither text nor an integer");
        }
        break;
      case Kind::List:
      case Kind::Tuple:
        for (size_t i = 0; i < value.items.size(); ++i) visit(*value.items[i], child(path, std::to_string(i)), depth + 1);
        break;
      case Kind::Tensor: {
        const auto name = path.empty() ? std::string("tensor") : path;
        require(names_.insert(name).second, "two tensors have the name '", name, "'");
        out_.tensors.emplace_back(name, make_tensor(*value.tensor, name));
        break;
      }
      default:
        out_.skipped.push_back(path);
        if (value.kind == Kind::Integer) out_.integers[path] = value.integer;
        break;
    }
  }

  static bool has_name(const PickleValue& key) { return key.kind == Kind::Text || key.kind == Kind::Integer || key.kind == Kind::Boolean; }

  static std::string key_text(const PickleValue& key) {
    if (key.kind == Kind::Text) return std::string(key.text);
    return has_name(key) ? std::to_string(key.integer) : "?";
  }

  at::Tensor storage(const PickledTensor& t, const std::string& name) {
    const auto found = storages_.find(std::string(t.key));
    if (found != storages_.end()) {
      require(found->second.scalar_type() == t.dtype && found->second.numel() == t.storage_size, "the storage of '", name,
              "' has two different descriptions");
      return found->second;
    }
    reader_.check_size(t, name);
    auto out = at::empty({t.storage_size}, at::TensorOptions().dtype(t.dtype));
    reader_.read(t, name, out.mutable_data_ptr());
    if (t.dtype == at::kBool) detail::make_bools(out.mutable_data_ptr(), out.nbytes());
    storages_.emplace(std::string(t.key), out);
    return out;
  }

  at::Tensor make_tensor(const PickledTensor& t, const std::string& name) {
    const auto elements = detail::checked_numel(t, name, source_, ErrorKind::Checkpoint, kMostExpanded);
    if (elements > static_cast<uint64_t>(t.storage_size)) expanded_ += elements;
    require(expanded_ <= kMostExpanded, "the tensors with strides of 0 have more than ", kMostExpanded, " elements in total");
    return translated("pth", [&] {
      const auto whole = storage(t, name);
      return elements == 0 ? at::empty(t.size, whole.options()) : whole.as_strided(t.size, t.stride, t.offset);
    });
  }

  StorageReader reader_;
  std::string source_;
  PthFile out_;
  std::unordered_set<std::string> names_;
  std::unordered_map<std::string, at::Tensor> storages_;
  size_t visited_ = 0;
  size_t name_bytes_ = 0;
  uint64_t expanded_ = 0;
};

}  // namespace

bool is_pth_name(const std::filesystem::path& path) {
  const auto extension = to_lower(path.extension().string());
  if (extension == ".tar") return is_pth_name(path.stem());  // model_best.pth.tar, as in PyTorch's examples and timm
  return extension == ".pth" || extension == ".pt" || extension == ".bin" || extension == ".ckpt";
}

PthFile load_pth(const std::filesystem::path& path) {
  ReadableFile file(path, ErrorKind::Checkpoint);
  if (detail::LegacyTorchFile::begins(file.read(0, std::min<uint64_t>(file.size(), 64)))) {
    const detail::LegacyTorchFile legacy(std::move(file), kLargestPickle);
    const auto read = [&](const PickledTensor& t, const std::string& name, void* out) { legacy.read_storage(t, name, out); };
    return Collector({[&](const PickledTensor& t, const std::string& name) { legacy.check_storage(t, name); }, read}, path.string())
        .collect(legacy.result());
  }
  const detail::TorchArchive archive(std::move(file), {.pickle = kLargestPickle, .directory = kLargestDirectory});
  const auto unpickler = archive.unpickle();
  const auto read = [&](const PickledTensor& t, const std::string& name, void* out) {
    archive.zip().read(archive.checked_storage(t, name), out);
  };
  return Collector({[&](const PickledTensor& t, const std::string& name) { archive.checked_storage(t, name); }, read}, path.string())
      .collect(unpickler.result());
}

}  // namespace npu_train
