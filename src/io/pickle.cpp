#include "npu_train/io/pickle.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_set>

#include "io/tensor_size.hpp"
#include "io/unpickler.hpp"
#include "io/zip_archive.hpp"

namespace npu_train {
namespace {

using detail::PickledTensor;
using detail::PickleValue;
using Kind = PickleValue::Kind;

constexpr uint64_t kLargestPickle = uint64_t{64} << 20;
constexpr size_t kMostLeaves = 1'000'000;
constexpr size_t kMostNameBytes = size_t{256} << 20;
constexpr size_t kDeepestPickle = 64;

constexpr std::array<std::pair<const char*, at::ScalarType>, 11> kStorageTypes = {{{"DoubleStorage", at::kDouble},
                                                                                   {"FloatStorage", at::kFloat},
                                                                                   {"HalfStorage", at::kHalf},
                                                                                   {"BFloat16Storage", at::kBFloat16},
                                                                                   {"LongStorage", at::kLong},
                                                                                   {"IntStorage", at::kInt},
                                                                                   {"ShortStorage", at::kShort},
                                                                                   {"CharStorage", at::kChar},
                                                                                   {"ByteStorage", at::kByte},
                                                                                   {"BoolStorage", at::kBool},
                                                                                   {"UntypedStorage", at::kByte}}};

at::ScalarType type_of(const std::string& storage) {
  for (const auto& [name, type] : kStorageTypes) {
    if (storage == name) return type;
  }
  throw Error(ErrorKind::Internal, "pth", "the storage '" + storage + "' has no dtype");
}

/// Flattens the pickle's value and makes its tensors from the archive's entries.
class Collector {
 public:
  Collector(const detail::ZipArchive& archive, std::string prefix, std::string source)
      : archive_(archive), prefix_(std::move(prefix)), source_(std::move(source)) {}

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
    require(depth <= kDeepestPickle, "nested deeper than ", kDeepestPickle, " levels");
    require(++visited_ <= kMostLeaves, "more than ", kMostLeaves, " values");
    name_bytes_ += path.size();
    require(name_bytes_ <= kMostNameBytes, "the names together are longer than 256 MiB");
    switch (value.kind) {
      case Kind::Dict:
        for (const auto& [key, item] : value.dict) visit(*item, child(path, key_text(*key, path)), depth + 1);
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
        break;
    }
  }

  std::string key_text(const PickleValue& key, const std::string& path) const {
    if (key.kind == Kind::Text) return key.text;
    require(key.kind == Kind::Integer || key.kind == Kind::Boolean, "a key of '", path, "' is neither text nor an integer");
    return std::to_string(key.integer);
  }

  at::Tensor storage(const PickledTensor& t, const std::string& name) {
    require(t.storage_size >= 0, "the storage of '", name, "' has a negative size");
    const auto type = type_of(t.storage_type);
    const auto found = storages_.find(t.key);
    if (found != storages_.end()) {
      require(found->second.scalar_type() == type && found->second.numel() == t.storage_size, "the storage of '", name,
              "' is described in two ways");
      return found->second;
    }
    const auto entry = prefix_ + "data/" + t.key;
    require(archive_.contains(entry), "the data of '", name, "' (", entry, ") is missing in the archive");
    const auto needed = detail::byte_count({t.storage_size}, c10::elementSize(type));
    require(needed && *needed == archive_.size(entry), "the data of '", name, "' has ", archive_.size(entry), " bytes; its storage claims ",
            t.storage_size, " elements of ", c10::elementSize(type));
    auto out = at::empty({t.storage_size}, at::TensorOptions().dtype(type));
    archive_.read(entry, out.mutable_data_ptr());
    if (type == at::kBool) detail::make_bools(out.mutable_data_ptr(), out.nbytes());
    storages_.emplace(t.key, out);
    return out;
  }

  at::Tensor make_tensor(const PickledTensor& t, const std::string& name) {
    const auto elements = detail::byte_count(t.size, 1);
    require(elements.has_value(), "the size of '", name, "' is impossible");
    require(t.offset >= 0, "'", name, "' begins before its storage");
    // The last element must lie in the storage; computed so that nothing can overflow.
    auto room = static_cast<uint64_t>(std::max<int64_t>(t.storage_size, 0));
    require(static_cast<uint64_t>(t.offset) <= room, "'", name, "' begins behind its storage");
    if (*elements > 0) {
      require(static_cast<uint64_t>(t.offset) < room, "'", name, "' begins behind its storage");
      uint64_t left = room - static_cast<uint64_t>(t.offset) - 1;
      for (size_t i = 0; i < t.size.size(); ++i) {
        require(t.stride[i] >= 0, "'", name, "' has a negative stride");
        const auto steps = static_cast<uint64_t>(t.size[i] - 1);
        const auto stride = static_cast<uint64_t>(t.stride[i]);
        if (steps == 0 || stride == 0) continue;
        require(steps <= left / stride, "'", name, "' reaches outside its storage");
        left -= steps * stride;
      }
      // An expanded tensor of a few bytes could stand for any amount of memory.
      require(*elements <= room, "'", name, "' has more elements than its storage");
    }
    const auto whole = storage(t, name);
    return translated("pth",
                      [&] { return *elements == 0 ? at::empty(t.size, whole.options()) : whole.as_strided(t.size, t.stride, t.offset); });
  }

  const detail::ZipArchive& archive_;
  std::string prefix_;
  std::string source_;
  PthFile out_;
  std::unordered_set<std::string> names_;
  std::unordered_map<std::string, at::Tensor> storages_;
  size_t visited_ = 0;
  size_t name_bytes_ = 0;
};

void refuse_other_formats(const std::filesystem::path& path) {
  const ReadableFile file(path, ErrorKind::Checkpoint);
  const auto start = file.read(0, std::min<uint64_t>(file.size(), 512));
  const auto where = path.string();
  check(!start.empty(), ErrorKind::Checkpoint, "pth", where, ": the file is empty");
  const bool legacy = start.starts_with("\x80\x02") || (start.size() > 262 && start.substr(257, 5) == "ustar");
  check(!legacy, ErrorKind::Checkpoint, "pth", where,
        ": saved in the format before PyTorch 1.6, which is not read; hint: in Python: torch.save(torch.load(path, weights_only=True), "
        "new_path)");
  check(start.starts_with(std::string_view("PK\x03\x04", 4)), ErrorKind::Checkpoint, "pth", where,
        ": not a file of torch.save (it is no zip archive)");
}

}  // namespace

PthFile load_pth(const std::filesystem::path& path) {
  refuse_other_formats(path);
  const detail::ZipArchive archive(path);
  const auto source = path.string();
  const auto& names = archive.names();
  const auto pickle =
      std::find_if(names.begin(), names.end(), [](const std::string& n) { return n == "data.pkl" || n.ends_with("/data.pkl"); });
  check(pickle != names.end(), ErrorKind::Checkpoint, "pth", source, ": a zip archive without data.pkl; not a file of torch.save");
  const auto prefix = pickle->substr(0, pickle->size() - std::string_view("data.pkl").size());
  check(!archive.contains(prefix + "constants.pkl"), ErrorKind::Checkpoint, "pth", source,
        ": a TorchScript archive, which holds code; hint: in Python: torch.save(torch.jit.load(path).state_dict(), new_path)");
  if (archive.contains(prefix + "byteorder")) {
    check(archive.size(prefix + "byteorder") < 16 && archive.read(prefix + "byteorder") == "little", ErrorKind::Checkpoint, "pth", source,
          ": saved on a big-endian machine, which is not read");
  }
  check(archive.size(*pickle) <= kLargestPickle, ErrorKind::Checkpoint, "pth", source, ": data.pkl has ", archive.size(*pickle),
        " bytes; allowed: at most ", kLargestPickle);
  const auto bytes = archive.read(*pickle);
  const detail::Unpickler unpickler(bytes, source);
  return Collector(archive, prefix, source).collect(unpickler.result());
}

}  // namespace npu_train
