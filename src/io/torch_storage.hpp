/// The names that torch.save gives to storages of each dtype.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace npu_train::detail {

inline constexpr std::array<std::pair<const char*, at::ScalarType>, 11> kStorageTypes = {{{"DoubleStorage", at::kDouble},
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

/// Nothing for a name that is not on the list.
inline std::optional<at::ScalarType> storage_dtype(std::string_view name) {
  for (const auto& [known, dtype] : kStorageTypes) {
    if (name == known) return dtype;
  }
  return std::nullopt;
}

/// nullptr for a dtype that has no storage of its own.
inline const char* storage_name(at::ScalarType dtype) {
  for (const auto& [name, known] : kStorageTypes) {
    if (dtype == known) return name;
  }
  return nullptr;
}

}  // namespace npu_train::detail
