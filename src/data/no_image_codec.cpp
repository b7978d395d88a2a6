// Replaces image_codec.cpp in a library without images, which needs none of libjpeg, libspng and libwebp.
#include "npu_train/core/error.hpp"
#include "npu_train/data/image_codec.hpp"

namespace npu_train {
namespace {

[[noreturn]] void reads_no_images(const std::string& where) {
  throw Error(ErrorKind::Device, "image", where + ": an npu_train that was built with NPU_TRAIN_IMAGES=OFF cannot read or write images",
              "build it with NPU_TRAIN_IMAGES=ON");
}

}  // namespace

ImageHeader read_header(const std::vector<uint8_t>& /*file*/, const std::string& where) { reads_no_images(where); }

Image decode_image(const std::vector<uint8_t>& /*file*/, const std::string& where) { reads_no_images(where); }

DecodedBox decode_box(const std::vector<uint8_t>& /*file*/, const std::string& where, const PixelBox& /*box*/, int64_t /*height*/,
                      int64_t /*width*/) {
  reads_no_images(where);
}

std::vector<uint8_t> encode_png(const Image& /*image*/) { reads_no_images("encode_png"); }

std::vector<uint8_t> encode_jpeg(const Image& /*image*/, int /*quality*/) { reads_no_images("encode_jpeg"); }

}  // namespace npu_train
