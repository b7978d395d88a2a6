/// Archives and pickles, valid and hostile, made byte by byte.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "testing.hpp"

namespace npu_train::testing {

/// Returns 0, 0.25, 0.5, ..., like ramp() of the Python scripts in this folder.
inline at::Tensor ramp(at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  int64_t count = 1;
  for (const auto extent : shape) count *= extent;
  return (at::arange(count, at::kFloat) / 4).reshape(shape).to(type);
}

template <class T>
std::string raw(T value) {
  std::string out(sizeof value, '\0');
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

/// An entry of a zip archive. The headers state the size `claimed`, or the true size if it is negative. Method 8 compresses the content,
/// unless `is_packed` states that it is compressed already.
struct ZipEntry {
  std::string name;
  std::string content;
  int method = 0;
  int64_t claimed = -1;
  bool is_packed = false;
};

/// Returns `content`, repeated `times` times and packed.
inline std::string deflated(const std::string& content, int times = 1) {
  z_stream stream{};
  deflateInit2(&stream, 1, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY);
  std::string out, piece(1 << 20, '\0');
  for (int i = 0; i < times; ++i) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
    stream.avail_in = static_cast<uInt>(content.size());
    do {
      stream.next_out = reinterpret_cast<Bytef*>(piece.data());
      stream.avail_out = static_cast<uInt>(piece.size());
      deflate(&stream, i + 1 == times ? Z_FINISH : Z_NO_FLUSH);
      out.append(piece, 0, piece.size() - stream.avail_out);
    } while (stream.avail_out == 0);
  }
  deflateEnd(&stream);
  return out;
}

inline std::string zip(const std::vector<ZipEntry>& entries) {
  std::string out, directory;
  for (const auto& [name, content, method, claimed, is_packed] : entries) {
    const auto packed = method == 8 && !is_packed ? deflated(content) : content;
    const auto crc = static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size())));
    const auto size = static_cast<uint32_t>(claimed >= 0 ? claimed : static_cast<int64_t>(content.size()));
    const auto common = raw(static_cast<uint16_t>(method)) + raw<uint32_t>(0) + raw(crc) + raw(static_cast<uint32_t>(packed.size())) +
                        raw(size) + raw(static_cast<uint16_t>(name.size())) + raw<uint16_t>(0);
    directory += "PK\1\2" + raw<uint16_t>(20) + raw<uint16_t>(20) + raw<uint16_t>(0) + common + raw<uint16_t>(0) + raw<uint16_t>(0) +
                 raw<uint16_t>(0) + raw<uint32_t>(0) + raw(static_cast<uint32_t>(out.size())) + name;
    out += "PK\3\4" + raw<uint16_t>(20) + raw<uint16_t>(0) + common + name + packed;
  }
  const auto count = static_cast<uint16_t>(entries.size());
  const auto offset = static_cast<uint32_t>(out.size());
  return out + directory + "PK\5\6" + raw<uint32_t>(0) + raw(count) + raw(count) + raw(static_cast<uint32_t>(directory.size())) +
         raw(offset) + raw<uint16_t>(0);
}

/// Returns the pickle instruction BINUNICODE for a text.
inline std::string text_op(const std::string& text) {
  std::string out(1, 'X');
  out += raw(static_cast<uint32_t>(text.size()));
  return out + text;
}

/// Returns the pickle instruction LONG1 for an integer of 8 bytes.
inline std::string integer_op(int64_t value) { return std::string("\x8a\x08") + raw(value); }

/// The description of a tensor in a pickle. Every part is given as pickle instructions, so that it can be anything. The defaults are valid
/// for 24 bytes of data.
struct TensorClaim {
  std::string offset = std::string("K\0", 2);
  std::string size = "K\x02K\x03\x86";
  std::string stride = "K\x03K\x01\x86";
  std::string storage_size = "K\x06";
  std::string storage = "torch\nFloatStorage\n";
  std::string key = "0";
  std::string function = "torch._utils\n_rebuild_tensor_v2\n";
  std::string more = "";  // arguments after the usual six

  std::string ops() const {
    return "c" + function + "((" + text_op("storage") + "c" + storage + text_op(key) + text_op("cpu") + storage_size + "tQ" + offset +
           size + stride + "\x89}" + more + "tR";
  }
};

/// Returns a pickle of protocol 2 whose value is what `ops` push.
inline std::string pickle(const std::string& ops) { return "\x80\x02" + ops + "."; }

inline std::string torch_archive(const std::string& pickled, const std::string& data = std::string(24, '\0')) {
  return zip({{"a/data.pkl", pickled}, {"a/data/0", data}});
}

inline std::filesystem::path write_bytes(const std::filesystem::path& path, const std::string& content) {
  std::FILE* out = std::fopen(path.c_str(), "wb");
  REQUIRE(out != nullptr);
  CHECK(std::fwrite(content.data(), 1, content.size(), out) == content.size());
  std::fclose(out);
  return path;
}

}  // namespace npu_train::testing
