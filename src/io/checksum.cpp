#include "npu_train/io/checksum.hpp"

#include <algorithm>
#include <vector>

#include "npu_train/core/hash.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train {
namespace {

uint64_t checksum_of(const ReadableFile& file) {
  constexpr uint64_t kPiece = uint64_t{1} << 20;
  std::vector<char> piece(std::min(kPiece, file.size()));
  Hasher hasher;
  for (uint64_t at = 0; at < file.size(); at += piece.size()) {
    const auto bytes = std::min<uint64_t>(piece.size(), file.size() - at);
    file.read(at, piece.data(), bytes);
    hasher.update(piece.data(), bytes);
  }
  return hasher.digest();
}

}  // namespace

uint64_t file_checksum(const std::filesystem::path& path, ErrorKind kind) { return checksum_of(ReadableFile(path, kind)); }

void verify_file(const std::filesystem::path& path, uint64_t bytes, uint64_t checksum, ErrorKind kind) {
  const ReadableFile file(path, kind);
  check(file.size() == bytes, kind, "checksum", path.string(), ": ", with_commas(static_cast<int64_t>(file.size())),
        " bytes; it was written with ", with_commas(static_cast<int64_t>(bytes)),
        "; hint: the file is truncated or was replaced; use another copy");
  const auto found = checksum_of(file);
  check(found == checksum, kind, "checksum", path.string(), ": checksum ", hex64(found), "; it was written with ", hex64(checksum),
        "; hint: the file is damaged; use another copy");
}

}  // namespace npu_train
