#include "data/image_file.hpp"

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::detail {
namespace {

constexpr uint64_t kMaxImageFile = uint64_t{512} << 20;

}  // namespace

bool is_image_name(const std::filesystem::path& path) {
  const std::string extension = to_lower(path.extension().string());
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

std::vector<uint8_t> read_image_file(const std::filesystem::path& path, const char* from) {
  const ReadableFile file(path);
  check(file.size() <= kMaxImageFile, ErrorKind::Data, from, path.string(), ": ", file.size(), " bytes; allowed: at most ", kMaxImageFile);
  std::vector<uint8_t> bytes(file.size());
  file.read(0, bytes.data(), bytes.size());
  return bytes;
}

}  // namespace npu_train::detail
