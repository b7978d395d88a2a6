#include "npu_train/base/state.hpp"

#include <cstring>

#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/core/message_text.hpp"

namespace npu_train {
namespace {

const char* type_of(const StateValue& value) {
  switch (value.index()) {
    case 0:
      return "an integer";
    case 1:
      return "a number";
    default:
      return "text";
  }
}

template <class Map>
const typename Map::mapped_type& entry(const Map& map, const std::string& key, const std::string& part) {
  const auto found = map.find(key);
  if (found != map.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  throw Error(ErrorKind::Checkpoint, part,
              "the state has no '" + key + "'; it has: " + (names.empty() ? "none" : detail::first_few(names, 20)),
              "it was saved by another version or for another kind of " + part);
}

template <class T>
const T& typed(const State& state, const std::string& key, const std::string& part, const char* wanted) {
  const auto& value = entry(state.values, key, part);
  const auto* found = std::get_if<T>(&value);
  check(found != nullptr, ErrorKind::Checkpoint, part.c_str(), "the state's '", key, "' is ", type_of(value), "; it must be ", wanted);
  return *found;
}

}  // namespace

int64_t State::integer(const std::string& key, const std::string& part) const { return typed<int64_t>(*this, key, part, "an integer"); }
double State::number(const std::string& key, const std::string& part) const { return typed<double>(*this, key, part, "a number"); }
const std::string& State::text(const std::string& key, const std::string& part) const {
  return typed<std::string>(*this, key, part, "text");
}
const at::Tensor& State::tensor(const std::string& key, const std::string& part) const { return entry(tensors, key, part); }

namespace {

void update_number(Hasher& hasher, int64_t value) { hasher.update(&value, sizeof value); }

// The length comes first, so that ("ab", "c") and ("a", "bc") differ.
void update_text(Hasher& hasher, const std::string& text) {
  update_number(hasher, static_cast<int64_t>(text.size()));
  hasher.update(text.data(), text.size());
}

void update_tensor(Hasher& hasher, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    update_number(hasher, -1);
    return;
  }
  check(tensor.layout() == at::kStrided && !tensor.is_quantized(), ErrorKind::Usage, "digest",
        "a sparse or quantised tensor has no digest; allowed: dense tensors");
  const auto host = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
  update_number(hasher, static_cast<int64_t>(host.scalar_type()));
  update_number(hasher, host.dim());
  for (const auto extent : host.sizes()) update_number(hasher, extent);
  hasher.update(host.const_data_ptr(), host.nbytes());
}

}  // namespace

uint64_t digest(const at::Tensor& tensor) {
  Hasher hasher;
  update_tensor(hasher, tensor);
  return hasher.digest();
}

uint64_t digest(const ParameterSet& parameters) {
  Hasher hasher;
  for (const auto& parameter : parameters) {
    update_text(hasher, parameter.name);
    update_tensor(hasher, parameter.value);
  }
  return hasher.digest();
}

uint64_t digest(const State& state) {
  Hasher hasher;
  update_number(hasher, static_cast<int64_t>(state.tensors.size()));
  for (const auto& [name, tensor] : state.tensors) {
    update_text(hasher, name);
    update_tensor(hasher, tensor);
  }
  for (const auto& [name, value] : state.values) {
    update_text(hasher, name);
    update_number(hasher, static_cast<int64_t>(value.index()));
    if (const auto* integer = std::get_if<int64_t>(&value)) {
      update_number(hasher, *integer);
    } else if (const auto* number = std::get_if<double>(&value)) {
      int64_t bits = 0;
      std::memcpy(&bits, number, sizeof bits);
      update_number(hasher, bits);
    } else {
      update_text(hasher, std::get<std::string>(value));
    }
  }
  return hasher.digest();
}

}  // namespace npu_train
