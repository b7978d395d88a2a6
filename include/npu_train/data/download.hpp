/// Downloads CIFAR: the same steps as scripts/get_data, with curl and tar as separate processes (no shell).
#pragma once

#include <string>

#include "npu_train/data/cifar.hpp"

namespace npu_train {

/// The archive and its checksum.
struct Archive {
  std::string url;
  std::string md5;     ///< 32 hexadecimal digits
  std::string folder;  ///< the folder inside
};
Archive cifar_archive(CifarKind kind);

/// Stores the archive's files in `root`. Does nothing if they exist. The folder appears completely or not at all: it is built next to its
/// place and renamed. Only https is followed (and file:// if the address is one), without the user's settings of curl, with up to 5
/// redirections and 1 GiB. Error(Data) names the step that failed (no network, wrong checksum, no space) and the remedy.
void download_cifar(CifarKind kind, const std::string& root);
void download_archive(const Archive& archive, const std::string& root);

/// MD5 of a file, for comparison with published sums. Error(Data) if it cannot be read.
std::string md5_of_file(const std::string& path);

}  // namespace npu_train
