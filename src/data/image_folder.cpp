#include "npu_train/data/image_folder.hpp"

#include <algorithm>
#include <filesystem>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxPicture = uint64_t{512} << 20;

bool is_picture(const fs::path& path) {
  const std::string extension = to_lower(path.extension().string());
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

/// Sorted paths of what is `wanted`, relative to `dir`.
template <class Iterator, class Wanted>
std::vector<std::string> names_in(const fs::path& dir, const Wanted& wanted) {
  std::error_code error;
  std::vector<std::string> names;
  for (Iterator it(dir, error), end; !error && it != end; it.increment(error))
    if (wanted(*it)) names.push_back(it->path().lexically_relative(dir).string());
  if (error) {
    throw Error(ErrorKind::Data, "ImageFolder", dir.string() + ": " + error.message(),
                "pictures are looked for in ROOT/train/<class>/ and ROOT/val/<class>/; set data.root, or run on data.name=generated");
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> folders_in(const fs::path& dir) {
  return names_in<fs::directory_iterator>(dir, [](const fs::directory_entry& item) {
    std::error_code gone;
    return item.path().filename().string()[0] != '.' && item.is_directory(gone);
  });
}

std::vector<std::string> pictures_in(const fs::path& dir) {
  return names_in<fs::recursive_directory_iterator>(dir, [](const fs::directory_entry& item) {
    std::error_code gone;
    return is_picture(item.path()) && item.is_regular_file(gone);
  });
}

}  // namespace

ImageFolder::ImageFolder(const std::string& dir, const std::vector<std::string>& class_names) : dir_(dir) {
  const std::vector<std::string> folders = folders_in(dir);
  check(!folders.empty(), ErrorKind::Data, "ImageFolder", dir,
        ": has no class folders; hint: each class is a folder of .jpg, .jpeg or .png files");
  info_.name = "image_folder";
  info_.class_names = class_names.empty() ? folders : class_names;
  info_.num_classes = static_cast<int64_t>(info_.class_names.size());
  info_.shape = {3, -1, -1};
  info_.mean = {0.485, 0.456, 0.406};
  info_.std = {0.229, 0.224, 0.225};
  for (const auto& folder : folders) {
    const auto known = std::find(info_.class_names.begin(), info_.class_names.end(), folder);
    check(known != info_.class_names.end(), ErrorKind::Data, "ImageFolder", dir, "/", folder,
          ": no class of the training data has this name");
    const std::vector<std::string> names = pictures_in(fs::path(dir) / folder);
    check(!names.empty(), ErrorKind::Data, "ImageFolder", dir, "/", folder,
          ": has no .jpg, .jpeg or .png files; hint: fill or remove the folder");
    for (const auto& name : names) files_.push_back({name, static_cast<int32_t>(known - info_.class_names.begin())});
  }
}

std::string ImageFolder::where(int64_t index) const {
  const auto& [name, label] = files_[index];
  return (fs::path(dir_) / info_.class_names[label] / name).string();
}

Picture ImageFolder::picture(int64_t index) const {
  check(index >= 0 && index < size(), ErrorKind::Usage, "ImageFolder", "picture ", index, " of ", size());
  const ReadableFile file(where(index));
  check(file.size() <= kMaxPicture, ErrorKind::Data, "ImageFolder", file.path().string(), ": ", file.size(), " bytes; at most ",
        kMaxPicture, " are read");
  std::vector<uint8_t> bytes(file.size());
  file.read(0, bytes.data(), bytes.size());
  return {{}, std::move(bytes), files_[index].label};
}

ImageFolderOptions::ImageFolderOptions() {
  image_size = 224;
  train_transforms = {part("random_resized_crop"), part("horizontal_flip"), part("normalize")};
  val_transforms = {part("resize", {{"crop_ratio", 0.875}}), part("center_crop"), part("normalize")};
}

const ConfigTable<ImageFolderOptions>& ImageFolderOptions::config_table() {
  static const auto table = data_fields(ConfigTable<ImageFolderOptions>("data image_folder")
                                            .field("root", &ImageFolderOptions::root, "folder with train/<class>/ and val/<class>/"));
  return table;
}

}  // namespace npu_train
