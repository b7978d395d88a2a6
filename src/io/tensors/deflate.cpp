#include "io/tensors/deflate.hpp"

#include <zlib.h>

#include <algorithm>

namespace npu_train::detail {
namespace {

constexpr uint64_t kMostAtOnce = uint64_t{1} << 30;  // zlib's counters have 32 bits

}  // namespace

uint32_t zip_crc32(const void* data, uint64_t bytes) {
  return static_cast<uint32_t>(::crc32_z(0, static_cast<const Bytef*>(data), static_cast<z_size_t>(bytes)));
}

std::string inflate_pieces(const std::function<std::string()>& next, void* out, uint64_t size) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return "zlib cannot start";
  struct End {
    z_stream* stream;
    ~End() { inflateEnd(stream); }
  } const end{&stream};
  std::string piece;
  auto* to = static_cast<Bytef*>(out);
  uint64_t made = 0;
  int status = Z_OK;
  unsigned char beyond = 0;
  while (status == Z_OK) {
    if (stream.avail_in == 0) {
      piece = next();
      stream.next_in = reinterpret_cast<Bytef*>(piece.data());
      stream.avail_in = static_cast<uInt>(piece.size());
    }
    const uint64_t room = std::min(size - made, kMostAtOnce);
    stream.next_out = room > 0 ? to + made : &beyond;  // one more byte, to detect content that is longer than claimed
    stream.avail_out = room > 0 ? static_cast<uInt>(room) : 1;
    const auto before = stream.avail_out;
    status = inflate(&stream, Z_NO_FLUSH);
    const auto gained = before - stream.avail_out;
    if (room == 0 && gained > 0) return "unpacks to more than it claims";
    made += gained;
  }
  return status == Z_STREAM_END && made == size ? "" : "does not unpack";
}

}  // namespace npu_train::detail
