#include "npu_train/base/state.hpp"

#include "npu_train/core/error.hpp"
#include "npu_train/core/first_few.hpp"

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

}  // namespace npu_train
