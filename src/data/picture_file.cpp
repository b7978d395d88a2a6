#include "data/picture_file.hpp"

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::detail {
namespace {

constexpr uint64_t kMaxPictureFile = uint64_t{512} << 20;

}  // namespace

bool is_picture_name(const std::filesystem::path& path) {
  const std::string extension = to_lower(path.extension().string());
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

std::vector<uint8_t> read_picture_file(const std::filesystem::path& path, const char* from) {
  const ReadableFile file(path);
  check(file.size() <= kMaxPictureFile, ErrorKind::Data, from, path.string(), ": ", file.size(), " bytes; allowed: at most ",
        kMaxPictureFile);
  std::vector<uint8_t> bytes(file.size());
  file.read(0, bytes.data(), bytes.size());
  return bytes;
}

}  // namespace npu_train::detail
