/// Downloads files and CIFAR, in the same steps as scripts/get_data, with curl and tar as separate processes (no shell).
#pragma once

#include <filesystem>
#include <string>

#include "npu_train/data/image_dataset.hpp"

namespace npu_train {

/// An archive to download.
struct Archive {
  std::string url;
  std::string md5;     ///< 32 hexadecimal digits
  std::string folder;  ///< name of the folder in the archive
};
Archive cifar_archive(CifarKind kind);

/// Error(Data) with `remedy` if NPU_TRAIN_OFFLINE is set to anything but 0, which forbids the download of `url`.
void check_online(const std::string& url, const std::string& remedy);

/// Downloads `url` to `file`, with curl or wget. Allows only https:// and file:// addresses, up to 5 redirections (with curl only to
/// https://, never to file://) and up to 2 GiB. Ignores the user's curl settings. Error(Data) with the last line that the program printed
/// and `remedy`; also if NPU_TRAIN_OFFLINE is set.
void download_file(const std::string& url, const std::filesystem::path& file, const std::string& remedy);

/// Stores the archive's files in `root`; does nothing if they exist. The folder appears completely or not at all: it is built next to
/// `root` and renamed. Error(Data) names the step that failed (no network, wrong checksum, no space) and the remedy.
void download_cifar(CifarKind kind, const std::string& root);
void download_archive(const Archive& archive, const std::string& root);

/// Returns the MD5 of a file, for comparison with published checksums. Error(Data) if it cannot be read.
std::string md5_of_file(const std::string& path);

}  // namespace npu_train
