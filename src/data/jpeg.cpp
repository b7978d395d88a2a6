#include "data/jpeg.hpp"

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <jpeglib.h>

#include <jerror.h>

#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

// A progressive file may hold any number of scans, each of a few bytes, and each scan costs time for every pixel. Encoders write about ten.
constexpr int kMaxScans = 100;
// Memory limit of libjpeg, which keeps all coefficients of a progressive file (2 bytes per pixel and component) even for a small box.
// Enough for 44 million pixels, or 89 million with subsampled chroma.
constexpr long kMostMemory = 256L << 20;

struct ErrorManager {
  jpeg_error_mgr base;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void on_error(j_common_ptr cinfo) {
  auto* errors = reinterpret_cast<ErrorManager*>(cinfo->err);
  errors->base.format_message(cinfo, errors->message);
  if (cinfo->err->msg_code == JERR_NO_BACKING_STORE || cinfo->err->msg_code == JERR_OUT_OF_MEMORY)
    std::snprintf(errors->message, sizeof errors->message, "decoding this progressive image needs more than %ld MiB", kMostMemory >> 20);
  std::longjmp(errors->jump, 1);
}

/// Turns libjpeg's warnings about missing or corrupt data into errors. libjpeg would fill in data and continue, which is not acceptable for
/// training data.
void on_message(j_common_ptr cinfo, int level) {
  if (level >= 0) return;
  const int code = cinfo->err->msg_code;
  if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE) on_error(cinfo);
}

void on_progress(j_common_ptr cinfo) {
  if (reinterpret_cast<j_decompress_ptr>(cinfo)->input_scan_number <= kMaxScans) return;
  auto* errors = reinterpret_cast<ErrorManager*>(cinfo->err);
  std::snprintf(errors->message, sizeof errors->message, "more than %d scans", kMaxScans);
  std::longjmp(errors->jump, 1);
}

/// Returns false, with a message in `errors`, on an error of libjpeg. longjmp leads only here, so `fn` must not have objects with
/// destructors.
template <class Fn>
bool succeeds(ErrorManager& errors, Fn fn) {
  if (setjmp(errors.jump) != 0) return false;
  fn();
  return true;
}

/// Frees libjpeg's memory, also if the constructor of Reader throws.
struct Decompressor : jpeg_decompress_struct {
  Decompressor() : jpeg_decompress_struct{} {}
  ~Decompressor() { jpeg_destroy_decompress(this); }
};

class Reader {
 public:
  Reader(const std::vector<uint8_t>& file, const std::string& where) : where_(where) {
    cinfo_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = on_error;
    errors_.base.emit_message = on_message;
    progress_.progress_monitor = on_progress;
    guarded([&] {
      jpeg_create_decompress(&cinfo_);
      cinfo_.progress = &progress_;
      cinfo_.mem->max_memory_to_use = kMostMemory;
      jpeg_mem_src(&cinfo_, file.data(), static_cast<unsigned long>(file.size()));
      jpeg_read_header(&cinfo_, TRUE);
    });
    check_size();
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  int64_t height() const { return cinfo_.image_height; }
  int64_t width() const { return cinfo_.image_width; }
  int64_t components() const { return cinfo_.num_components; }
  DecodedBox decode(const PixelBox& box, int denominator);

 private:
  template <class Fn>
  void guarded(Fn fn) {
    if (!succeeds(errors_, fn)) fail(errors_.message);
  }
  [[noreturn]] void fail(const std::string& message) {
    const bool large = errors_.base.msg_code == JERR_NO_BACKING_STORE || errors_.base.msg_code == JERR_OUT_OF_MEMORY;
    throw Error(ErrorKind::Data, "JPEG", where_ + ": " + message,
                large ? "save it smaller, or as a non-progressive image" : "the file is damaged; replace or remove it");
  }
  void check_size() {
    if (height() > 0 && width() > 0 && height() <= Image::kMaxPixels / width()) return;
    fail("its header claims " + std::to_string(width()) + " x " + std::to_string(height()) + " pixels; allowed: at most " +
         std::to_string(Image::kMaxPixels));
  }
  void check_end();

  std::string where_;
  ErrorManager errors_{};
  Decompressor cinfo_;
  jpeg_progress_mgr progress_{};
};

/// Converts CMYK as stored in JPEG files (inverted if Adobe's marker is present) to RGB, in place.
void cmyk_to_rgb(uint8_t* pixels, int64_t n, bool inverted) {
  for (int64_t i = 0; i < n; ++i) {
    uint8_t* p = pixels + 4 * i;
    const int k = inverted ? p[3] : 255 - p[3];
    for (int c = 0; c < 3; ++c) p[c] = static_cast<uint8_t>(((inverted ? p[c] : 255 - p[c]) * k + 127) / 255);
  }
}

DecodedBox Reader::decode(const PixelBox& box, int denominator) {
  const bool cmyk = cinfo_.jpeg_color_space == JCS_CMYK || cinfo_.jpeg_color_space == JCS_YCCK;
  DecodedBox out;
  const double scale = 1.0 / denominator;
  JDIMENSION first_row = 0, last_row = 0, left = 0, columns = 0;
  guarded([&] {
    cinfo_.out_color_space = cmyk ? JCS_CMYK : JCS_EXT_RGBX;
    cinfo_.scale_num = 1;
    cinfo_.scale_denom = static_cast<unsigned>(denominator);
    jpeg_start_decompress(&cinfo_);
    first_row = static_cast<JDIMENSION>(box.top / denominator);
    last_row = std::min<JDIMENSION>(cinfo_.output_height, static_cast<JDIMENSION>((box.top + box.height + denominator - 1) / denominator));
    left = static_cast<JDIMENSION>(box.left / denominator);
    const auto right = static_cast<JDIMENSION>((box.left + box.width + denominator - 1) / denominator);
    // Two more columns on the right for the interpolation of chroma.
    columns = std::min<JDIMENSION>(cinfo_.output_width, right + 2) - left;
    if (columns < cinfo_.output_width) jpeg_crop_scanline(&cinfo_, &left, &columns);
    if (first_row > 0) jpeg_skip_scanlines(&cinfo_, first_row);
  });
  out.image = Image::allocate(last_row - first_row, columns, 3, PixelOrder::Packed);
  uint8_t* row = out.image.mutable_packed_row(0);
  guarded([&] {
    while (cinfo_.output_scanline < last_row) {
      JSAMPROW line = row + static_cast<int64_t>(cinfo_.output_scanline - first_row) * columns * 4;
      jpeg_read_scanlines(&cinfo_, &line, 1);
    }
  });
  if (last_row < cinfo_.output_height) check_end();
  if (cmyk) cmyk_to_rgb(row, out.image.height() * out.image.width(), cinfo_.saw_Adobe_marker != FALSE);
  out.y0 = static_cast<double>(box.top) * scale - first_row;
  out.x0 = static_cast<double>(box.left) * scale - left;
  out.y1 = std::min(static_cast<double>(box.top + box.height) * scale - first_row, static_cast<double>(out.image.height()));
  out.x1 = std::min(static_cast<double>(box.left + box.width) * scale - left, static_cast<double>(out.image.width()));
  return out;
}

/// Fails if the end marker is missing: rows below the box are not decoded, but a file that is truncated there is still damaged.
void Reader::check_end() {
  const uint8_t* begin = cinfo_.src->next_input_byte;
  const uint8_t* end = begin + cinfo_.src->bytes_in_buffer;
  for (const uint8_t* p = end - 2; p >= begin; --p) {
    if (p[0] == 0xff && p[1] == JPEG_EOI) return;
  }
  // libjpeg reads a progressive file to its end before the first row, or has already read the marker.
  if (jpeg_input_complete(&cinfo_) != FALSE || cinfo_.unread_marker == JPEG_EOI) return;
  fail("ends before its end marker");
}

/// Frees libjpeg's memory.
struct Compressor : jpeg_compress_struct {
  Compressor() : jpeg_compress_struct{} {}
  ~Compressor() { jpeg_destroy_compress(this); }
};

/// Writes a dense image, planar gray or packed RGB, to memory that `file` owns.
void compress(Compressor& cinfo, const Image& image, int quality, unsigned char** file, unsigned long* size) {
  const bool gray = image.channels() == 1;
  jpeg_create_compress(&cinfo);
  jpeg_mem_dest(&cinfo, file, size);
  cinfo.image_height = static_cast<JDIMENSION>(image.height());
  cinfo.image_width = static_cast<JDIMENSION>(image.width());
  cinfo.input_components = gray ? 1 : 4;
  cinfo.in_color_space = gray ? JCS_GRAYSCALE : JCS_EXT_RGBX;
  jpeg_set_defaults(&cinfo);
  jpeg_set_quality(&cinfo, quality, TRUE);
  jpeg_start_compress(&cinfo, TRUE);
  while (cinfo.next_scanline < cinfo.image_height) {
    const auto y = static_cast<int64_t>(cinfo.next_scanline);
    auto* line = const_cast<JSAMPROW>(gray ? image.plane(0) + y * image.width() : image.packed_row(y));
    jpeg_write_scanlines(&cinfo, &line, 1);
  }
  jpeg_finish_compress(&cinfo);
}

}  // namespace

bool is_jpeg(const std::vector<uint8_t>& file) { return file.size() > 3 && file[0] == 0xff && file[1] == 0xd8 && file[2] == 0xff; }

ImageHeader jpeg_header(const std::vector<uint8_t>& file, const std::string& where) {
  const Reader reader(file, where);
  return {ImageHeader::Format::Jpeg, reader.height(), reader.width(), reader.components()};
}

DecodedBox decode_jpeg(const std::vector<uint8_t>& file, const std::string& where, const PixelBox& box, int denominator) {
  Reader reader(file, where);
  check(box.top >= 0 && box.left >= 0 && box.height > 0 && box.width > 0 && box.top + box.height <= reader.height() &&
            box.left + box.width <= reader.width(),
        ErrorKind::Internal, "decode_jpeg", "the box is not inside the image");
  return reader.decode(box, denominator);
}

}  // namespace npu_train::detail

namespace npu_train {

std::vector<uint8_t> encode_jpeg(const Image& image, int quality) {
  constexpr const char* where = "encode_jpeg";
  constexpr int64_t kLongest = 65'500;  // JPEG_MAX_DIMENSION of libjpeg
  check(image.channels() == 1 || image.channels() == 3, ErrorKind::Usage, where, "an image with ", image.channels(),
        " channels; allowed: 1, 3");
  check(quality >= 1 && quality <= 100, ErrorKind::Usage, where, "quality is ", quality, "; allowed: 1 to 100");
  check(image.height() <= kLongest && image.width() <= kLongest, ErrorKind::Usage, where, "an image of ", image.width(), " x ",
        image.height(), " pixels; allowed: at most ", kLongest, " on a side");
  const Image dense = image.dense(image.channels() == 1 ? PixelOrder::Planar : PixelOrder::Packed);
  detail::ErrorManager errors{};
  detail::Compressor out;
  out.err = jpeg_std_error(&errors.base);
  errors.base.error_exit = detail::on_error;
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  // From here on, only a lack of memory can be the cause of an error. The bytes are then not freed, because libjpeg replaces them as they
  // grow and returns the last ones only at the end.
  if (!detail::succeeds(errors, [&] { detail::compress(out, dense, quality, &bytes, &size); }))
    throw Error(ErrorKind::OutOfMemory, where, errors.message);
  const std::unique_ptr<unsigned char, void (*)(void*)> file(bytes, std::free);
  return {bytes, bytes + size};
}

}  // namespace npu_train
