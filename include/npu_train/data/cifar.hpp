/// CIFAR-10 and CIFAR-100 in their binary layout (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009).
/// A record is the label byte (CIFAR-100: coarse, then fine label) and 3,072 bytes: the red, green and blue plane of 32 x 32 pixels.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/data/data_options.hpp"
#include "npu_train/data/image_dataset.hpp"

namespace npu_train {

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
