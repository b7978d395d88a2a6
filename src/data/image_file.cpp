#include "data/image_file.hpp"

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::detail {

bool is_image_name(const std::filesystem::path& path) {
  const std::string extension = to_lower(path.extension().string());
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png" || extension == ".webp" || extension == ".bmp";
}

std::vector<uint8_t> read_image_file(const std::filesystem::path& path, const char* from) {
  const ReadableFile file(path);
  check(file.size() <= kMaxImageFile, ErrorKind::Data, from, path.string(), ": ", file.size(), " bytes; allowed: at most ", kMaxImageFile);
  std::vector<uint8_t> bytes(file.size());
  file.read(0, bytes.data(), bytes.size());
  return bytes;
}

std::string validation_folder(const std::filesystem::path& root) {
  std::error_code none;
  for (const char* name : {"val", "valid", "validation"})
    if (std::filesystem::is_directory(root / name, none)) return (root / name).string();
  return "";
}

std::filesystem::path training_folder(const std::filesystem::path& root) {
  const auto is_folder = [](const std::filesystem::path& path) {
    std::error_code none;
    return std::filesystem::is_directory(path, none);
  };
  const bool divided = !validation_folder(root).empty() || is_folder(root / "test");
  return divided || is_folder(root / "train") || !is_folder(root) ? root / "train" : root;
}

std::filesystem::path path_of_listed_image(const std::filesystem::path& root, const std::string& name, const std::string& where,
                                           const char* from) {
  check(is_image_name(name), ErrorKind::Data, from, where, ": the image is '", name, "'; allowed: the path of a ", kImageExtensions,
        " file in data.root");
  try {
    return safe_join(root, name);
  } catch (const Error&) {
    throw Error(ErrorKind::Data, from, where + ": the image '" + name + "' leads out of data.root, " + root.string(),
                "name files in that folder, without .. and links out of it", std::current_exception());
  }
}

}  // namespace npu_train::detail
