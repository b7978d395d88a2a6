#include "testing.hpp"

#include "npu_train/io/npy.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>

#include "npu_train/io/file.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;
using npu_train::testing::TempDir;

namespace {

std::string npy(const std::string& header, const std::string& data, char version = 1) {
  std::string out = std::string("\x93NUMPY") + version + '\0';
  const int bytes_of_length = version > 1 ? 4 : 2;
  for (int i = 0; i < bytes_of_length; ++i) out += static_cast<char>(header.size() >> 8 * i);
  return out + header + data;
}

}  // namespace

TEST_CASE("every dtype and shape comes back") {
  const TempDir dir;
  for (const auto type : {at::kDouble, at::kFloat, at::kHalf, at::kLong, at::kInt, at::kShort, at::kChar, at::kByte, at::kBool}) {
    const auto t = (at::arange(6) % 2).reshape({2, 3}).to(type);
    save_npy(dir / "a.npy", t);
    CHECK(at::equal(load_npy(dir / "a.npy"), t));
  }
  for (const auto& t : {at::ones({}), at::ones({5}), at::empty({0, 3}), at::arange(24, at::kFloat).reshape({2, 3, 4}).permute({2, 0, 1})}) {
    save_npy(dir / "a.npy", t);
    CHECK(at::equal(load_npy(dir / "a.npy"), t));
  }
  CHECK(error_of([&] { save_npy(dir / "b.npy", at::ones({1}, at::kBFloat16)); }).kind() == ErrorKind::Usage);
  CHECK_FALSE(std::filesystem::exists(dir / "b.npy"));
}

TEST_CASE("the bytes are NumPy's") {
  const TempDir dir;
  save_npy(dir / "a.npy", at::ones({2}, at::kFloat));
  const auto content = read_file(dir / "a.npy", 1000);
  CHECK(content.size() == 128 + 8);
  CHECK(content.starts_with(std::string("\x93NUMPY\1\0\x76\0", 10) + "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"));
  CHECK(content[127] == '\n');
}

TEST_CASE("Fortran order and later versions are read") {
  const TempDir dir;
  const std::string bytes("\0\1\2\3\4\5", 6);
  for (const char version : {1, 2, 3}) {
    write_file_atomic(dir / "a.npy", npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }\n", bytes, version));
    CHECK(at::equal(load_npy(dir / "a.npy"), at::arange(6, at::kByte).reshape({3, 2}).t()));
  }
}

TEST_CASE("the longest header and the most dimensions") {
  const TempDir dir;
  const auto with = [&](size_t dimensions, size_t bytes) {
    std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (";
    for (size_t i = 0; i < dimensions; ++i) header += "1, ";
    header += "), }";
    header.resize(bytes, ' ');
    return write_file_atomic(dir / "a.npy", npy(header, "\7", 2));
  };
  with(64, 65536);
  CHECK(load_npy(dir / "a.npy").dim() == 64);
  with(65, 65536);
  CHECK(has(error_of([&] { load_npy(dir / "a.npy"); }).what(), "invalid shape"));
  with(64, 65537);
  CHECK(has(error_of([&] { load_npy(dir / "a.npy"); }).what(), "the header has 65537 bytes; allowed: at most 65536"));
}

TEST_CASE("damaged files are refused") {
  const TempDir dir;
  const auto path = dir / "a.npy";
  const std::string four(4, '\0');
  struct Row {
    std::string content;
    const char* part;
  };
  const std::vector<Row> rows = {
      {"", "only 0 bytes"},
      {"PK\3\4 and more text", "does not begin"},
      {npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", four), "objects are never read"},
      {npy("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", four), "dtype '>f4'"},
      {npy("{'descr': '=f4', 'fortran_order': False, 'shape': (1,), }", four), "dtype '=f4'"},
      {npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", four), "records"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", four), "4 bytes of data; the shape requires 8"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }", four), "requires 0"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }", four), "more than any memory"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", four), "invalid shape"},
      {npy("{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,), }", four), "True or False"},
      {npy("{'descr': '<f4', 'shape': (1,), }", four), "has no descr, fortran_order or shape"},
      {npy("{'descr': '', 'fortran_order': False, 'shape': (1,), }", four), "dtype ''"},
      {npy("{'descr': '<f4", four), "unterminated quote"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } import os", four), "after its header"},
      {npy("", four), "header"},
      {npy("{'x': 1}", four, 9), "version 9"},
  };
  for (const auto& row : rows) {
    write_file_atomic(path, row.content);
    const auto e = error_of([&] { load_npy(path); });
    CHECK(e.kind() == ErrorKind::Data);
    CAPTURE(std::string(e.what()));
    CHECK(std::string(e.what()).find(row.part) != std::string::npos);
  }
  save_npy(path, at::ones({3}));
  const auto content = read_file(path, 1000);
  for (size_t length = 0; length < content.size(); ++length) {
    write_file_atomic(path, content.substr(0, length));
    CHECK_THROWS_AS(load_npy(path), Error);
  }
}
