#include "io/tensors/legacy_torch.hpp"

#include <algorithm>
#include <utility>

#include "io/tensors/pickle_names.hpp"
#include "io/tensors/tensor_size.hpp"

namespace npu_train::detail {
namespace {

// PROTO 2, LONG1 of 10 bytes: 0x1950a86a20f9469cfc6c, STOP; then the version of the format, 1001.
constexpr std::string_view kMagic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.", 21);
constexpr uint64_t kLargestDescription = 1 << 16;  // bytes of the pickle that describes the machine

}  // namespace

template <class... Parts>
void LegacyTorchFile::require(bool ok, const Parts&... parts) const {
  check(ok, file_.kind(), "pth", source_, ": ", parts...);
}

bool LegacyTorchFile::begins(std::string_view start) { return start.starts_with(kMagic); }

LegacyTorchFile::LegacyTorchFile(ReadableFile file, uint64_t largest_pickle) : file_(std::move(file)), source_(file_.path().string()) {
  at_ = kMagic.size();
  const auto machine = next_pickle(kLargestDescription);
  const auto& described = machine->result();
  require(described.kind == PickleValue::Kind::Dict, "does not describe the machine that wrote it");
  for (size_t i = 0; i + 1 < described.items.size(); i += 2)
    require(described.items[i]->text != "little_endian" || described.items[i + 1]->integer == 1,
            "saved on a big-endian machine, which is not read");
  value_ = next_pickle(largest_pickle);
  const auto keys = next_pickle(largest_pickle);
  find_storages(keys->result());
}

std::unique_ptr<Unpickler> LegacyTorchFile::next_pickle(uint64_t largest) {
  const auto bytes = std::min(largest, file_.size() - at_);
  auto out = std::make_unique<Unpickler>(file_.read(at_, bytes), source_, file_.kind());
  at_ += out->size();
  return out;
}

// Finds the storages. In the file, each storage is its number of elements, followed by the elements.
void LegacyTorchFile::find_storages(const PickleValue& keys) {
  require(keys.kind == PickleValue::Kind::List, "does not list its storages");
  const auto claimed = value_->storages();
  for (const auto* key : keys.items) {
    require(key->kind == PickleValue::Kind::Text, "a storage has a name that is not text");
    const auto found = claimed.find(std::string(key->text));
    require(found != claimed.end(), "the storage '", printable(key->text), "' belongs to no tensor");
    int64_t elements = 0;
    require(file_.size() - at_ >= sizeof elements, "ends before the storage '", printable(key->text), "'");
    file_.read(at_, &elements, sizeof elements);
    at_ += sizeof elements;
    const auto& storage = *found->second;
    require(elements == storage.storage_size, "the storage '", printable(key->text), "' has ", elements,
            " elements, and its tensors claim ", storage.storage_size);
    const auto bytes = byte_count({elements}, c10::elementSize(storage.dtype));
    require(bytes && *bytes <= file_.size() - at_, "ends inside of the storage '", printable(key->text), "'");
    require(places_.emplace(found->first, Place{at_, *bytes}).second, "lists the storage '", printable(key->text), "' twice");
    at_ += *bytes;
  }
}

void LegacyTorchFile::check_storage(const PickledTensor& tensor, const std::string& name) const {
  const auto found = places_.find(std::string(tensor.key));
  require(found != places_.end(), "the data of '", name, "' are missing from the file");
  const auto needed = byte_count({tensor.storage_size}, c10::elementSize(tensor.dtype));
  require(needed && *needed == found->second.bytes, "the data of '", name, "' have ", found->second.bytes, " bytes; its storage claims ",
          tensor.storage_size, " elements of ", c10::elementSize(tensor.dtype));
}

void LegacyTorchFile::read_storage(const PickledTensor& tensor, const std::string& name, void* out) const {
  check_storage(tensor, name);
  const auto& place = places_.at(std::string(tensor.key));
  file_.read(place.begin, out, place.bytes);
}

}  // namespace npu_train::detail
