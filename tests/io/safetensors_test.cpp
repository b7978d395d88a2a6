#include "testing.hpp"

#include "npu_train/io/safetensors.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <random>

#include "npu_train/core/hash.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::TempDir;

namespace {

NamedTensors sample() {
  NamedTensors out;
  out.emplace_back("flags", (at::arange(3) % 2).to(at::kBool));  // 3 bytes, so that the tensors after it would not be aligned
  for (const auto type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar, at::kByte}) {
    out.emplace_back(std::string("t.") + c10::toString(type), at::arange(6).reshape({2, 3}).to(type));
  }
  out.emplace_back("scalar", at::ones({}));
  out.emplace_back("empty", at::empty({0, 4}));
  out.emplace_back("strided", at::arange(12, at::kFloat).reshape({3, 4}).t());
  return out;
}

std::string with_header(const std::string& header, size_t data_bytes) {
  std::string out(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(out.data(), &length, 8);
  return out + header + std::string(data_bytes, '\1');
}

}  // namespace

TEST_CASE("every dtype, scalars, empty and strided tensors come back") {
  const TempDir dir;
  const auto path = dir / "a.safetensors";
  const auto tensors = sample();
  const auto written = save_safetensors(path, tensors, {{"format", "pt"}, {"note", "\xc3\xa9 \"x\""}});
  const auto content = read_file(path, 1 << 20);
  CHECK(written.bytes == content.size());
  CHECK(written.checksum == hash64(content));

  const SafetensorsFile file(path);
  CHECK(file.metadata().at("note") == "\xc3\xa9 \"x\"");
  REQUIRE(file.names().size() == tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    CAPTURE(name);
    CHECK(file.names()[i] == name);
    CHECK((file.info(name).dtype == tensor.scalar_type()));
    CHECK(file.info(name).shape == tensor.sizes().vec());
    CHECK(file.info(name).begin % static_cast<uint64_t>(tensor.element_size()) == 0);
    CHECK(at::equal(file.tensor(name), tensor));
  }
  CHECK(std::string(error_of([&] { file.tensor("scaler"); }).what()).find("did you mean 'scalar'?") != std::string::npos);
  CHECK(load_safetensors(path).size() == tensors.size());
}

TEST_CASE("the bytes are those of the format") {
  const TempDir dir;
  save_safetensors(dir / "a", {{"b", at::ones({2}, at::kByte)}, {"w", at::ones({1, 2})}});
  const auto content = read_file(dir / "a", 1000);
  const std::string header =
      R"({"b": {"dtype": "U8", "shape": [2], "data_offsets": [8, 10]}, "w": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}})";
  uint64_t length = 0;
  std::memcpy(&length, content.data(), 8);
  CHECK(length % 8 == 0);
  CHECK(content.substr(8, header.size()) == header);
  CHECK(content.substr(8 + header.size(), length - header.size()).find_first_not_of(' ') == std::string::npos);
  CHECK(content.substr(8 + length) == std::string("\0\0\x80\x3f\0\0\x80\x3f\1\1", 10));
  save_safetensors(dir / "none", {});
  CHECK(SafetensorsFile(dir / "none").names().empty());
}

TEST_CASE("content that the format does not support is an error of the caller, and nothing is written") {
  const TempDir dir;
  const auto path = dir / "a";
  for (const NamedTensors& bad : {NamedTensors{{"a", at::ones({1})}, {"a", at::ones({1})}}, NamedTensors{{"__metadata__", at::ones({1})}},
                                  NamedTensors{{"a", at::Tensor()}}, NamedTensors{{"a", at::ones({1}, at::kComplexFloat)}},
                                  NamedTensors{{"a", at::ones({2}).to_sparse()}}}) {
    CHECK(error_of([&] { save_safetensors(path, bad); }).kind() == ErrorKind::Usage);
  }
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("a header with a false claim is refused, and the message names the claim") {
  struct Row {
    const char* header;
    size_t data;
    const char* part;
  };
  const std::vector<Row> rows = {
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4, "occupies bytes 0 to 8 of 4 bytes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 12, "belong to no tensor"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "its shape requires 12"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "negative extent"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0, "larger than any memory"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}})", 0, "larger than any memory"},
      {R"({"a":{"dtype":"F32","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}})", 0, "larger than any memory"},
      {R"({"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}})", 8, "of 8 bytes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "occupies bytes 8 to 0"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", 8, "occupies bytes -8"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8, "two"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8.0]}})", 8, "integer"},
      {R"({"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})", 2, "BOOL; hint: in Python, save the tensors converted"},
      {R"({"a":{"dtype":"F31","shape":[2],"data_offsets":[0,2]}})", 2, "dtype 'F31'"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", 8, "data_offsets"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", 8, "shape"},
      {R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8, "dtype"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8, "twice"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6, "overlaps"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})", 9, "gap"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5, "gap"},
      {R"({"__metadata__":{"a":1}})", 0, "text"},
      {R"({"a":3})", 0, "object"},
      {R"([1,2])", 0, "begin with"},
      {R"({"a")", 0, "invalid JSON"},
      {R"(  {}  )", 0, "begin with"},
  };
  const TempDir dir;
  for (const auto& row : rows) {
    CAPTURE(std::string(row.header));
    write_file_atomic(dir / "a", with_header(row.header, row.data));
    const auto e = error_of([&] { SafetensorsFile(dir / "a"); });
    CHECK(e.kind() == ErrorKind::Checkpoint);
    CAPTURE(std::string(e.what()));
    CHECK(std::string(e.what()).find(row.part) != std::string::npos);
  }
  for (const uint64_t length : {uint64_t{0}, uint64_t{1}, uint64_t{1000}, uint64_t{100'000'001}, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    auto content = with_header(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4);
    std::memcpy(content.data(), &length, 8);
    write_file_atomic(dir / "a", content);
    CHECK_THROWS_AS(SafetensorsFile(dir / "a"), Error);
  }
  CHECK(error_of([&] { SafetensorsFile(dir / "none", ErrorKind::Data); }).kind() == ErrorKind::Data);
  CHECK_THROWS_AS(SafetensorsFile(dir.path()), Error);
}

TEST_CASE("a dtype that is not read is named, and not called damage") {
  const TempDir dir;
  write_file_atomic(dir / "a", with_header(R"({"a":{"dtype":"F8_E5M2","shape":[2],"data_offsets":[0,2]}})", 2));
  const std::string said = error_of([&] { SafetensorsFile(dir / "a"); }).what();
  CHECK(testing::has(said, "'a' has the dtype 'F8_E5M2', which is not read; supported: F64"));
  CHECK(testing::has(said, "tensor.to(torch.float32)"));
  CHECK_FALSE(testing::has(said, "damaged"));
}

TEST_CASE("cut at any length it is refused, with any flipped byte of the header it never crashes") {
  const TempDir dir;
  const auto path = dir / "a";
  save_safetensors(path, {{"w", at::arange(6, at::kFloat).reshape({2, 3})}, {"b", at::ones({3}, at::kBool)}}, {{"k", "v"}});
  const auto content = read_file(path, 10'000);
  const auto damaged = dir / "b";
  const auto put = [&](const std::string& text) {
    std::FILE* out = std::fopen(damaged.c_str(), "wb");
    std::fwrite(text.data(), 1, text.size(), out);
    std::fclose(out);
  };
  for (size_t length = 0; length < content.size(); ++length) {
    put(content.substr(0, length));
    CHECK_THROWS_AS(load_safetensors(damaged), Error);
  }
  put(content + "x");
  CHECK_THROWS_AS(load_safetensors(damaged), Error);
  std::mt19937 random(1);
  for (size_t i = 0; i < content.size(); ++i) {
    for (int k = 0; k < 4; ++k) {
      auto text = content;
      text[i] = static_cast<char>(k == 0 ? text[i] ^ 1 : random());
      put(text);
      try {
        for (const auto& [name, tensor] : load_safetensors(damaged)) CHECK(tensor.nbytes() <= 24);
      } catch (const Error&) {
      }
    }
  }
}
