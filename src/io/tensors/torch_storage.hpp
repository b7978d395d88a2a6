/// Names of torch.save's storage types by dtype.
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

/// Returns nullopt for an unknown name.
inline std::optional<at::ScalarType> storage_dtype(std::string_view name) {
  for (const auto& [known, dtype] : kStorageTypes) {
    if (name == known) return dtype;
  }
  return std::nullopt;
}

/// Returns nullptr for a dtype without a storage type.
inline const char* storage_name(at::ScalarType dtype) {
  for (const auto& [name, known] : kStorageTypes) {
    if (dtype == known) return name;
  }
  return nullptr;
}

}  // namespace npu_train::detail
