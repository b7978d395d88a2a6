#include "data/webp.hpp"

#include <webp/decode.h>
#include <webp/demux.h>

#include <cstring>
#include <memory>

#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

void check_webp(VP8StatusCode status, const std::string& where) {
  if (status == VP8_STATUS_OK) return;
  check(status != VP8_STATUS_OUT_OF_MEMORY, ErrorKind::OutOfMemory, "WebP", where, ": no memory for a decoder");
  const bool ends = status == VP8_STATUS_NOT_ENOUGH_DATA || status == VP8_STATUS_SUSPENDED;
  throw Error(ErrorKind::Data, "WebP", where + (ends ? ": ends too early" : ": is not valid"), "the file is damaged; replace or remove it");
}

WebPBitstreamFeatures webp_features(const std::vector<uint8_t>& file, const std::string& where) {
  WebPBitstreamFeatures out{};
  check_webp(WebPGetFeatures(file.data(), file.size(), &out), where);
  check(out.width > 0 && out.height > 0 && int64_t{out.height} <= Image::kMaxPixels / out.width, ErrorKind::Data, "WebP", where,
        ": its header claims ", out.width, " x ", out.height, " pixels; allowed: at most ", Image::kMaxPixels);
  return out;
}

/// Decodes one bitstream into the image, with its first pixel at (top, left). libwebp fails if the rest of the image is too small for it.
void decode_webp_into(Image& out, int64_t top, int64_t left, const uint8_t* data, size_t bytes, const std::string& where) {
  const int64_t row = 4 * out.width();
  WebPDecoderConfig config;
  check(WebPInitDecoderConfig(&config) != 0, ErrorKind::Internal, "WebP", "libwebp is older than its header");
  config.output.colorspace = MODE_RGBA;  // alpha is in the fourth byte, which is not used
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = out.mutable_packed_row(top) + 4 * left;
  config.output.u.RGBA.stride = static_cast<int>(row);
  config.output.u.RGBA.size = static_cast<size_t>((out.height() - top) * row - 4 * left);
  check_webp(WebPDecode(data, bytes, &config), where);
}

struct DeleteDemuxer {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};
struct ReleaseFrame {
  void operator()(WebPIterator* frame) const { WebPDemuxReleaseIterator(frame); }
};

void decode_first_frame(Image& out, const std::vector<uint8_t>& file, const std::string& where) {
  const WebPData data{file.data(), file.size()};
  const std::unique_ptr<WebPDemuxer, DeleteDemuxer> demuxer(WebPDemux(&data));
  if (demuxer == nullptr) check_webp(VP8_STATUS_BITSTREAM_ERROR, where);
  WebPIterator frame{};
  if (WebPDemuxGetFrame(demuxer.get(), 1, &frame) == 0) check_webp(VP8_STATUS_BITSTREAM_ERROR, where);
  const std::unique_ptr<WebPIterator, ReleaseFrame> release(&frame);
  const bool inside = frame.x_offset >= 0 && frame.y_offset >= 0 && frame.width > 0 && frame.height > 0 &&
                      int64_t{frame.x_offset} + frame.width <= out.width() && int64_t{frame.y_offset} + frame.height <= out.height();
  if (!inside) check_webp(VP8_STATUS_BITSTREAM_ERROR, where);
  std::memset(out.mutable_packed_row(0), 0, static_cast<size_t>(4 * out.pixels()));  // the frame may be smaller than the image
  decode_webp_into(out, frame.y_offset, frame.x_offset, frame.fragment.bytes, frame.fragment.size, where);
}

}  // namespace

bool is_webp(const std::vector<uint8_t>& file) {
  return file.size() > 12 && std::memcmp(file.data(), "RIFF", 4) == 0 && std::memcmp(file.data() + 8, "WEBP", 4) == 0;
}

ImageHeader webp_header(const std::vector<uint8_t>& file, const std::string& where) {
  const auto features = webp_features(file, where);
  return {
      .format = ImageHeader::Format::Webp, .height = features.height, .width = features.width, .channels = features.has_alpha != 0 ? 4 : 3};
}

Image decode_webp(const std::vector<uint8_t>& file, const std::string& where) {
  const auto features = webp_features(file, where);
  Image out = Image::allocate(features.height, features.width, 3, PixelOrder::Packed);
  if (features.has_animation != 0)
    decode_first_frame(out, file, where);
  else
    decode_webp_into(out, 0, 0, file.data(), file.size(), where);
  return out;
}

}  // namespace npu_train::detail
