/// Images in folders by class: ROOT/train/<class>/*.jpg, ROOT/val/<class>/*.png and ROOT/test/<class>/..., as for ImageNet, or
/// ROOT/<class>/*.jpg, as for torchvision. The validation folder may be called val, valid or validation.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "npu_train/data/data_options.hpp"
#include "npu_train/data/image_dataset.hpp"
#include "npu_train/data/split.hpp"

namespace npu_train {

/// Files of .jpg, .jpeg, .png, .webp and .bmp (any case) at any depth below DIR/<class>/ (links to folders are not followed); classes and
/// files in sorted order, so that labels are the same everywhere.
class ImageFolder final : public ImageDataset {
 public:
  /// Error(Data) if `dir` is not a folder or has no class folders, or if a class has no images. With `class_names`, labels are indices into
  /// it, so that a validation folder that lacks a class has the labels of training; Error(Data) for a folder with another name.
  explicit ImageFolder(const std::string& dir, const std::vector<std::string>& class_names = {});

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  /// Reads the file without decoding it, because only the caller knows the required part. Error(Data) names a file that cannot be read.
  LabelledImage image(int64_t index) const override;
  DatasetInfo info() const override { return info_; }
  std::string where(int64_t index) const override;
  int64_t label(int64_t index) const override { return files_.at(static_cast<size_t>(index)).label; }

  /// Number of images in subfolders of class folders, at any depth; they belong to the class.
  int64_t in_subfolders() const { return in_subfolders_; }
  /// Files and folders below `dir` that are not read, by kind: {".gif", 3}, {"outside a class folder", 1}, {"in a linked folder", 1}.
  /// Hidden ones are not counted.
  const std::map<std::string, int64_t>& skipped() const { return skipped_; }

 private:
  struct Entry {
    std::string name;  // relative to the class folder
    int32_t label;
  };
  void add_class(const std::string& folder, int32_t label);
  void skip(const std::string& what) { ++skipped_[what]; }

  std::string dir_;
  std::vector<Entry> files_;
  int64_t in_subfolders_ = 0;
  std::map<std::string, int64_t> skipped_;
  DatasetInfo info_;
};

/// Returns `paths` with each folder replaced by its image files (see ImageFolder) at any depth, sorted, without hidden ones. Error(Data)
/// for a folder without such files, or one that cannot be read.
std::vector<std::string> image_files(const std::vector<std::string>& paths);

struct ImageFolderOptions : DataOptions, SplitOptions {
  std::string root = "data/imagenet";
  ImageFolderOptions();
  static const ConfigTable<ImageFolderOptions>& config_table();
};

}  // namespace npu_train
