// Names and content of image files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace npu_train::detail {

// The extensions of images, for messages.
inline constexpr const char* kImageExtensions = ".jpg, .jpeg, .png, .webp or .bmp";

// Returns whether a name has one of these extensions, in upper or lower case.
bool is_image_name(const std::filesystem::path& path);

// Returns the folder of the classes for training: ROOT/train, or ROOT itself if it has none of the folders train, val, valid, validation
// and test.
std::filesystem::path training_folder(const std::filesystem::path& root);
// Returns the folder of validation images, ROOT/val, valid or validation, or "".
std::string validation_folder(const std::filesystem::path& root);

// Returns the path of an image in `root` that a list names. Error(Data), which begins with `from` and names `where`, if the name is not
// that of an image file or leads out of the folder.
std::filesystem::path path_of_listed_image(const std::filesystem::path& root, const std::string& name, const std::string& where,
                                           const char* from);

inline constexpr uint64_t kMaxImageFile = uint64_t{512} << 20;

// Returns the bytes of a file. Error(Data), which begins with `from`, if it is larger than kMaxImageFile; Error(Data) if it cannot be read.
std::vector<uint8_t> read_image_file(const std::filesystem::path& path, const char* from);

}  // namespace npu_train::detail
