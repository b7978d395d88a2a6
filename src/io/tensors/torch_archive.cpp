#include "io/tensors/torch_archive.hpp"

#include <algorithm>
#include <utility>

#include "io/tensors/legacy_torch.hpp"
#include "io/tensors/pickle_names.hpp"
#include "io/tensors/tensor_size.hpp"

namespace npu_train::detail {
namespace {

constexpr std::string_view kPickleName = "data.pkl";

// Returns `file`, so that the initialiser that opens the archive can call this function.
ReadableFile refuse_other_formats(ReadableFile file) {
  const auto kind = file.kind();
  const auto start = file.read(0, std::min<uint64_t>(file.size(), 512));
  const auto where = file.path().string();
  check(!start.empty(), kind, "pth", where, ": the file is empty");
  check(!LegacyTorchFile::begins(start), kind, "pth", where,
        ": saved in the format before PyTorch 1.6, which is read for weights only; hint: in Python: torch.save(torch.load(path, "
        "weights_only=True), new_path)");
  check(start.size() <= 262 || start.substr(257, 5) != "ustar", kind, "pth", where,
        ": a tar archive, the format before PyTorch 0.1.10, which is not read; hint: in Python: torch.save(torch.load(path), new_path)");
  check(!start.starts_with("\x80"), kind, "pth", where, ": a pickle that torch.save did not write; hint: torch.save(state_dict, path)");
  check(start.starts_with(std::string_view("PK\x03\x04", 4)), kind, "pth", where, ": not a file of torch.save (it is not a zip archive)");
  return file;
}

}  // namespace

template <class... Parts>
void TorchArchive::require(bool ok, const Parts&... parts) const {
  check(ok, zip_.file().kind(), "pth", source_, ": ", parts...);
}

TorchArchive::TorchArchive(ReadableFile file, const Limits& limits)
    : source_(file.path().string()), zip_(refuse_other_formats(std::move(file)), limits.directory) {
  const auto& names = zip_.names();
  const auto pickle =
      std::find_if(names.begin(), names.end(), [](const std::string& n) { return n == "data.pkl" || n.ends_with("/data.pkl"); });
  require(pickle != names.end(), "a zip archive without data.pkl; not a file of torch.save");
  prefix_ = pickle->substr(0, pickle->size() - kPickleName.size());
  require(!zip_.contains(prefix_ + "constants.pkl"),
          "a TorchScript archive, which contains code; hint: in Python: torch.save(torch.jit.load(path).state_dict(), new_path)");
  if (zip_.contains(prefix_ + "byteorder")) {
    require(zip_.size(prefix_ + "byteorder") < 16 && zip_.read(prefix_ + "byteorder") == "little",
            "saved on a big-endian machine, which is not read");
  }
  require(zip_.size(*pickle) <= limits.pickle, "data.pkl has ", zip_.size(*pickle), " bytes; allowed: at most ", limits.pickle);
}

Unpickler TorchArchive::unpickle() const { return Unpickler(zip_.read(prefix_ + std::string(kPickleName)), source_, zip_.file().kind()); }

uint64_t checked_numel(const PickledTensor& t, const std::string& name, const std::string& source, ErrorKind kind, uint64_t most_expanded) {
  const auto require = [&](bool ok, const auto&... parts) { check(ok, kind, "pth", source, ": ", parts...); };
  const auto elements = byte_count(t.size, 1);
  require(elements.has_value(), "the size of '", name, "' is impossible");
  require(t.offset >= 0, "'", name, "' begins before its storage");
  // Checks that the last element is in the storage. The computation cannot overflow.
  auto room = static_cast<uint64_t>(std::max<int64_t>(t.storage_size, 0));
  require(static_cast<uint64_t>(t.offset) <= room, "'", name, "' begins after the end of its storage");
  if (*elements > 0) {
    require(static_cast<uint64_t>(t.offset) < room, "'", name, "' begins after the end of its storage");
    uint64_t left = room - static_cast<uint64_t>(t.offset) - 1;
    for (size_t i = 0; i < t.size.size(); ++i) {
      require(t.stride[i] >= 0, "'", name, "' has a negative stride");
      const auto steps = static_cast<uint64_t>(t.size[i] - 1);
      const auto stride = static_cast<uint64_t>(t.stride[i]);
      if (steps == 0 || stride == 0) continue;
      require(steps <= left / stride, "'", name, "' extends beyond its storage");
      left -= steps * stride;
    }
    // Limits the elements, because an expanded tensor of a few bytes could claim any amount of memory.
    require(*elements <= std::max(room, most_expanded), "'", name,
            "' has more elements than its storage; hint: torch.save(tensor.contiguous(), path)");
  }
  return *elements;
}

std::string TorchArchive::checked_storage(const PickledTensor& t, const std::string& name) const {
  require(t.storage_size >= 0, "the storage of '", name, "' has a negative size");
  auto entry = (prefix_ + "data/").append(t.key);
  require(zip_.contains(entry), "the data of '", name, "' (", printable(entry), ") is missing from the archive");
  const auto needed = byte_count({t.storage_size}, c10::elementSize(t.dtype));
  require(needed && *needed == zip_.size(entry), "the data of '", name, "' has ", zip_.size(entry), " bytes; its storage claims ",
          t.storage_size, " elements of ", c10::elementSize(t.dtype));
  return entry;
}

}  // namespace npu_train::detail
