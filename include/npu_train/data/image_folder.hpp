/// Pictures in folders by class, as ImageNet is kept: ROOT/train/<class>/*.jpg, ROOT/val/<class>/*.png ...
#pragma once

#include <string>
#include <vector>

#include "npu_train/data/data_options.hpp"
#include "npu_train/data/picture_dataset.hpp"

namespace npu_train {

/// Files of .jpg, .jpeg and .png (any case) at any depth below DIR/<class>/ (links to folders are not followed); classes and files in
/// sorted order, so that labels are the same everywhere.
class ImageFolder final : public PictureDataset {
 public:
  /// Error(Data) when `dir` is no folder, has no class folders, or a class has no pictures. With `class_names` the labels are theirs
  /// (a validation folder that misses a class keeps the numbers of training); a folder that is not among them is an Error(Data).
  explicit ImageFolder(const std::string& dir, const std::vector<std::string>& class_names = {});

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  /// Reads the file; it is decoded by whoever knows the part that is needed. Error(Data) names a file that cannot be read.
  Picture picture(int64_t index) const override;
  DatasetInfo info() const override { return info_; }
  std::string where(int64_t index) const override;

 private:
  struct Entry {
    std::string name;  // relative to the class folder
    int32_t label;
  };
  std::string dir_;
  std::vector<Entry> files_;
  DatasetInfo info_;
};

struct ImageFolderOptions : DataOptions {
  std::string root = "data/imagenet";
  ImageFolderOptions();
  static const ConfigTable<ImageFolderOptions>& config_table();
};

}  // namespace npu_train
