/// Data sets of labelled images: from folders by class, from lists in files, and CIFAR. They provide bytes, and the loader's workers decode
/// and transform them directly into the batch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/data/data_options.hpp"
#include "npu_train/data/dataset.hpp"
#include "npu_train/data/image.hpp"

namespace npu_train {

/// A labelled image before the transforms: pixels, or the bytes of an image file (image_codec.hpp), which is decoded when the required part
/// and size are known.
struct LabelledImage {
  Image pixels;                  ///< empty if `encoded` is used
  std::vector<uint8_t> encoded;  ///< a complete image file
  int64_t label = 0;
  std::vector<float> targets{};  ///< in place of the label: as many numbers as ImageDataset::targets()
};

/// Images, each with one label or with several targets. `get` returns the untransformed image, as uint8 [C, H, W].
class ImageDataset : public Dataset {
 public:
  /// Returns image `index`. Called from several threads at once.
  virtual LabelledImage image(int64_t index) const = 0;
  /// Returns the length of LabelledImage::targets; the "target" of a batch is then fp32 [N, targets()]. 0: the images have labels, and the
  /// "target" is int64 [N].
  virtual int64_t targets() const { return 0; }
  /// Whether the targets are arbitrary numbers, instead of a number from 0 to 1 for each class.
  virtual bool has_numbers() const { return false; }
  Sample get(int64_t index) const override;
};

/// Images of one size in memory.
class MemoryImages : public ImageDataset {
 public:
  /// `pixels` contains labels.size() images of channels x height x width bytes, in planes.
  /// Error(Usage) if the sizes do not match or a label is outside [0, info.num_classes).
  MemoryImages(std::vector<uint8_t> pixels, std::vector<int64_t> labels, DatasetInfo info);

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  LabelledImage image(int64_t index) const override;
  DatasetInfo info() const override { return info_; }
  int64_t label(int64_t index) const override { return labels_.at(static_cast<size_t>(index)); }
  const std::vector<int64_t>& labels() const { return labels_; }
  /// The bytes of one image.
  const uint8_t* pixels(int64_t index) const { return pixels_.data() + index * bytes_; }
  int64_t image_bytes() const { return bytes_; }

 protected:
  MemoryImages() = default;
  void assign(std::vector<uint8_t> pixels, std::vector<int64_t> labels, DatasetInfo info);

 private:
  std::vector<uint8_t> pixels_;
  std::vector<int64_t> labels_;
  DatasetInfo info_;
  int64_t bytes_ = 0;
};

// Divides labelled images into training and validation data, by a seed and by class.

/// What is held out of the training data for validation. At most one of `val_split` and `fold` is set.
struct SplitOptions {
  double val_split = 0;    ///< fraction of each class; 0: none
  std::string fold{};      ///< "I/N": part I of N equal parts of each class, I from 1 (cross-validation); empty: none
  int64_t split_seed = 0;  ///< which images are held out depends only on this seed, the labels and the order of the images

  bool any() const { return val_split > 0 || !fold.empty(); }
};

/// Indices in ascending order; each index is in one of the lists.
struct SplitIndices {
  std::vector<int64_t> train, val;
};

/// Divides samples 0, 1, ... with these labels. Stratified: a class with n samples gives n * val_split of them to validation, or n / N to a
/// fold, rounded up or down so that the same holds for the total; val_split leaves each class at least one training sample. The N folds are
/// disjoint and contain all samples. Error(Usage) for options out of range, and if no sample is left for training or for validation.
SplitIndices split_by_class(const std::vector<int64_t>& labels, const SplitOptions& options);

/// Some images of a data set, in the order of the indices.
class ImageSubset final : public ImageDataset {
 public:
  /// Error(Usage) for an index outside of the data set.
  ImageSubset(std::shared_ptr<const ImageDataset> images, std::vector<int64_t> indices);

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  LabelledImage image(int64_t index) const override { return images_->image(indices_.at(static_cast<size_t>(index))); }
  DatasetInfo info() const override { return images_->info(); }
  std::string where(int64_t index) const override { return images_->where(indices_.at(static_cast<size_t>(index))); }
  int64_t label(int64_t index) const override { return images_->label(indices_.at(static_cast<size_t>(index))); }
  int64_t targets() const override { return images_->targets(); }
  bool has_numbers() const override { return images_->has_numbers(); }

 private:
  std::shared_ptr<const ImageDataset> images_;
  std::vector<int64_t> indices_;
};

/// Returns the images for training, and those for validation; images with targets() in place of labels are divided as one class.
/// Error(Usage) as in split_by_class, also if the labels are not known.
std::pair<std::shared_ptr<const ImageDataset>, std::shared_ptr<const ImageDataset>> split_images(
    const std::shared_ptr<const ImageDataset>& images, const SplitOptions& options);

/// Adds the keys of SplitOptions to the options of a data set.
template <class T>
ConfigTable<T> split_fields(ConfigTable<T> table) {
  const auto add = [&table]<class V>(const char* name, V SplitOptions::*member, const char* doc, Bounds bounds = {}) {
    table.field(name, static_cast<V T::*>(member), doc, std::move(bounds));
  };
  add("val_split", &SplitOptions::val_split, "fraction of the training images that is held out for validation, of each class; 0: none",
      between(0, 0.9));
  add("fold", &SplitOptions::fold, "holds out part I of N equal parts of each class, as in 2/5 (cross-validation); empty: none");
  add("split_seed", &SplitOptions::split_seed, "seed of val_split and fold", at_least(0));
  table.synonym("val_fraction", "val_split");
  return table;
}

// Images in folders by class: ROOT/train/<class>/*.jpg, ROOT/val/<class>/*.png and ROOT/test/<class>/..., as for ImageNet, or
// ROOT/<class>/*.jpg, as for torchvision. The validation folder may be called val, valid or validation.

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

// Images listed in a file (a .csv with a header, or a .jsonl), each with a class, several classes, or numbers.
//
//   image,label                  image,tags            image,x,y
//   day1/cat.jpg,cat             a.jpg,cat;indoor      a.jpg,0.5,12

/// The columns of a .csv, or the keys of a .jsonl. One of `label`, `labels` and `values` is given.
struct ImageListColumns {
  std::string image = "image";        ///< path of an image file (see ImageFolder), relative to the root
  std::string label{};                ///< one class, by name
  std::string labels{};               ///< any number of classes: names joined by `separator`, or a list in a .jsonl
  std::vector<std::string> values{};  ///< numbers: one column for each
  std::string separator = ";";
};

/// The target of an image is the number of its class; with `labels`, 0 or 1 for each class, and with `values`, the numbers, both as fp32
/// [targets()].
class ImageList final : public ImageDataset {
 public:
  /// `classes`: class names of the training data; empty: the names in this file, in alphabetical order, or by number if all names are
  /// numbers. Error(Data) with the line for a missing column or key, an image outside of `root` or of another kind, an empty label, a class
  /// that is not among `classes`, and a value that is not a finite number. Error(Data) also for a file without lines or one that cannot be
  /// read. The images are opened when they are used.
  ImageList(std::string root, const std::string& file, ImageListColumns columns, std::vector<std::string> classes = {});

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  LabelledImage image(int64_t index) const override;
  DatasetInfo info() const override { return info_; }
  std::string where(int64_t index) const override;
  int64_t label(int64_t index) const override { return columns_.label.empty() ? -1 : rows_.at(static_cast<size_t>(index)).first; }
  int64_t targets() const override { return columns_.label.empty() ? info_.num_classes : 0; }
  bool has_numbers() const override { return !columns_.values.empty(); }

 private:
  // With `label`, `first` is the class. Otherwise, `first` and `count` select a part of numbers_ or labels_.
  struct Row {
    std::string image;
    int32_t first = 0, count = 0;
  };
  struct Reading;

  std::string root_, file_;
  ImageListColumns columns_;
  DatasetInfo info_;
  std::vector<Row> rows_;
  std::vector<int32_t> labels_;
  std::vector<float> numbers_;
};

struct ImageListOptions : DataOptions, SplitOptions, ImageListColumns {
  std::string root = "data/images", train{}, val{}, test{};
  ImageListOptions();
  static const ConfigTable<ImageListOptions>& config_table();
};

// CIFAR-10 and CIFAR-100 in their binary layout (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009).
// A record is the label byte (CIFAR-100: coarse, then fine label) and 3,072 bytes: the red, green and blue plane of 32 x 32 pixels.

enum class CifarKind { Cifar10, Cifar100 };

/// All images of one split, read into memory.
class CifarDataset final : public MemoryImages {
 public:
  /// Reads data_batch_1.bin ... data_batch_5.bin or test_batch.bin (CIFAR-100: train.bin or test.bin) from `root`; a file may contain any
  /// number of complete records. Error(Data) with file, size and record size if a file is missing or truncated, or a label is out of range.
  CifarDataset(CifarKind kind, const std::string& root, Split split);

  std::string where(int64_t index) const override;

 private:
  struct File {
    std::string path;
    int64_t first = 0;  // index of its first record
  };
  std::vector<File> files_;
};

/// Returns names, classes, shape and statistics without reading a file.
DatasetInfo cifar_info(CifarKind kind);

/// Returns the paths of a split's files, in reading order.
std::vector<std::string> cifar_files(CifarKind kind, Split split);

/// Writes images of 3 x 32 x 32 as a file in CIFAR-10's layout.
void write_cifar10(const MemoryImages& images, const std::string& path);

struct CifarOptions : DataOptions {
  std::string root;
  bool download = false;
  CifarOptions();
};
struct Cifar10Options : CifarOptions {
  Cifar10Options() { root = "data/cifar-10-batches-bin"; }
  static const ConfigTable<Cifar10Options>& config_table();
};
struct Cifar100Options : CifarOptions {
  Cifar100Options() { root = "data/cifar-100-binary"; }
  static const ConfigTable<Cifar100Options>& config_table();
};

}  // namespace npu_train
