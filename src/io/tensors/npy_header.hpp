/// The header of a .npy file, for the reader and the writer.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "npu_train/io/file.hpp"

namespace npu_train::detail {

inline constexpr std::string_view kNpyMagic = "\x93NUMPY";

inline constexpr std::array<std::pair<const char*, at::ScalarType>, 9> kNpyTypes = {{{"<f8", at::kDouble},
                                                                                     {"<f4", at::kFloat},
                                                                                     {"<f2", at::kHalf},
                                                                                     {"<i8", at::kLong},
                                                                                     {"<i4", at::kInt},
                                                                                     {"<i2", at::kShort},
                                                                                     {"|i1", at::kChar},
                                                                                     {"|u1", at::kByte},
                                                                                     {"|b1", at::kBool}}};

/// A header that has been checked against the file.
struct NpyHeader {
  at::ScalarType dtype = at::kFloat;
  bool fortran_order = false;
  std::vector<int64_t> shape;
  uint64_t data_begin = 0;  // offset of the data, which extend to the end of the file
};

/// Error(Data) unless the file is a valid .npy file with one of kNpyTypes.
NpyHeader read_npy_header(const ReadableFile& file);

}  // namespace npu_train::detail
