/// Fetches CIFAR: the same steps as scripts/get_data, by curl and tar as processes of their own (no shell).
#pragma once

#include <string>

#include "npu_train/data/cifar.hpp"

namespace npu_train {

/// What is fetched and how it is recognised.
struct Archive {
  std::string url;
  std::string md5;     ///< 32 hexadecimal digits
  std::string folder;  ///< the folder inside
};
Archive cifar_archive(CifarKind kind);

/// Leaves the archive's files in `root`. Does nothing when they are there. The folder appears at once or not at all: everything is made
/// beside it and renamed. Only https is followed (and file:// where the address is one), without the user's settings of curl, up to 5
/// redirections and 1 GiB. Error(Data) says which step failed (no network, wrong checksum, no room) and what to do.
void download_cifar(CifarKind kind, const std::string& root);
void download_archive(const Archive& archive, const std::string& root);

/// MD5 of a file, for comparing with published sums. Error(Data) when it cannot be read.
std::string md5_of_file(const std::string& path);

}  // namespace npu_train
