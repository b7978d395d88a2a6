#include "npu_train/data/image_dataset.hpp"

#include <algorithm>
#include <filesystem>

#include "data/image_file.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;

bool hidden(const fs::path& path) { return path.filename().string()[0] == '.'; }

/// Returns the entries of `dir`, sorted by name, without hidden ones.
std::vector<fs::directory_entry> entries_of(const fs::path& dir) {
  std::error_code error;
  std::vector<fs::directory_entry> out;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error))
    if (!hidden(it->path())) out.push_back(*it);
  if (error) {
    throw Error(
        ErrorKind::Data, "ImageFolder", dir.string() + ": " + error.message(),
        "images must be in ROOT/train/<class>/ and ROOT/val/<class>/, or in ROOT/<class>/; set data.root, or use 'data={name: generated}'");
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.path() < b.path(); });
  return out;
}

/// Returns the name under which an unread file is counted.
std::string kind_of_file(const fs::path& path) {
  const auto extension = to_lower(path.extension().string());
  return extension.empty() ? "without extension" : extension;
}

std::string count_of(const std::map<std::string, int64_t>& counts) {
  std::vector<std::string> out;
  for (const auto& [what, count] : counts) out.push_back(std::to_string(count) + " " + what);
  return join(out);
}

}  // namespace

ImageFolder::ImageFolder(const std::string& dir, const std::vector<std::string>& class_names) : dir_(dir) {
  std::vector<std::string> folders;
  for (const auto& entry : entries_of(dir)) {
    std::error_code gone;
    if (entry.is_directory(gone))
      folders.push_back(entry.path().filename().string());
    else
      skip("outside a class folder");
  }
  check(!folders.empty(), ErrorKind::Data, "ImageFolder", dir, ": contains no class folders; hint: each class is a folder with ",
        detail::kImageExtensions, " files");
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
    add_class(folder, static_cast<int32_t>(known - info_.class_names.begin()));
  }
}

void ImageFolder::add_class(const std::string& folder, int32_t label) {
  const auto top = fs::path(dir_) / folder;
  std::vector<std::string> names;
  std::map<std::string, int64_t> others;
  std::error_code error;
  const auto failed = [&] { return Error(ErrorKind::Data, "ImageFolder", top.string() + ": " + error.message()); };
  for (fs::recursive_directory_iterator it(top, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (hidden(it->path())) {
      if (it->is_directory(gone)) it.disable_recursion_pending();
    } else if (it->is_directory(gone)) {
      if (it->is_symlink(gone)) ++others["in a linked folder"];
    } else if (!detail::is_image_name(it->path()) || !it->is_regular_file(gone)) {
      ++others[kind_of_file(it->path())];
    } else {
      names.push_back(it->path().lexically_relative(top).string());
      in_subfolders_ += it.depth() > 0;
    }
  }
  if (error) throw failed();
  check(!names.empty(), ErrorKind::Data, "ImageFolder", top.string(), ": contains no ", detail::kImageExtensions, " files",
        others.empty() ? "" : ", but " + count_of(others), "; hint: ", others.empty() ? "" : "convert them, or ",
        "fill or remove the folder");
  std::sort(names.begin(), names.end());
  for (auto& name : names) files_.push_back({std::move(name), label});
  for (const auto& [what, count] : others) skipped_[what] += count;
}

std::string ImageFolder::where(int64_t index) const {
  const auto& [name, label] = files_[index];
  return (fs::path(dir_) / info_.class_names[label] / name).string();
}

LabelledImage ImageFolder::image(int64_t index) const {
  check(index >= 0 && index < size(), ErrorKind::Usage, "ImageFolder", "image ", index, " of ", size());
  return {{}, detail::read_image_file(where(index), "ImageFolder"), files_[index].label};
}

std::vector<std::string> image_files(const std::vector<std::string>& paths) {
  std::vector<std::string> out;
  for (const auto& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      out.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    for (fs::recursive_directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
      std::error_code gone;
      if (hidden(it->path())) {
        if (it->is_directory(gone)) it.disable_recursion_pending();
      } else if (detail::is_image_name(it->path()) && it->is_regular_file(gone)) {
        inside.push_back(it->path().string());
      }
    }
    check(!error, ErrorKind::Data, "images", path, ": ", error.message());
    check(!inside.empty(), ErrorKind::Data, "images", path, ": contains no ", detail::kImageExtensions, " files");
    std::sort(inside.begin(), inside.end());
    out.insert(out.end(), inside.begin(), inside.end());
  }
  return out;
}

ImageFolderOptions::ImageFolderOptions() {
  image_size = 224;
  train_transforms = {part("random_resized_crop"), part("horizontal_flip"), part("normalize")};
  val_transforms = {part("resize", {{"crop_ratio", 0.875}}), part("center_crop"), part("normalize")};
}

const ConfigTable<ImageFolderOptions>& ImageFolderOptions::config_table() {
  static const auto table = split_fields(
      data_fields(ConfigTable<ImageFolderOptions>("data image_folder")
                      .field("root", &ImageFolderOptions::root, "folder with train/<class>/ and val/<class>/, or with <class>/")));
  return table;
}

}  // namespace npu_train
