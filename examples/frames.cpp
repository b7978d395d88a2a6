// Classifies images in memory, as OpenCV and Eigen store them: frames CHECKPOINT. It needs neither library, because two structs with the
// required members replace theirs.
#include <cstdint>
#include <cstdio>
#include <vector>

#include <npu_train/engine/predictor.hpp>

// With OpenCV, include <opencv2/core.hpp> instead.
constexpr int CV_8U = 0;

namespace cv {

struct Mat {
  unsigned char* data;
  int rows, cols;
  std::size_t step;
  int channels() const { return 3; }
  int depth() const { return CV_8U; }
};

}  // namespace cv

namespace {

// With Eigen: Eigen::Matrix<uint8_t, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>.
struct Matrix {
  static constexpr bool IsRowMajor = true;
  const uint8_t* values;
  const uint8_t* data() const { return values; }
  int64_t rows() const { return 480; }
  int64_t cols() const { return 640; }
  int64_t outerStride() const { return 640; }
};

// A cv::Mat of 8 bits (CV_8UC1, CV_8UC3 or CV_8UC4), also a part of another one. OpenCV stores blue first.
npu_train::ImageView view_of(const cv::Mat& image) {
  npu_train::check(image.depth() == CV_8U, npu_train::ErrorKind::Usage, "view_of", "the channels do not have 8 bits; hint: convertTo()");
  return {.data = image.data,
          .height = image.rows,
          .width = image.cols,
          .channels = image.channels(),
          .row_stride = static_cast<int64_t>(image.step),
          .order = npu_train::ChannelOrder::Bgr};
}

// A gray image as a matrix of Eigen in row-major order, or a block of one.
template <class RowMajorMatrix>
npu_train::ImageView gray_view(const RowMajorMatrix& image) {
  static_assert(RowMajorMatrix::IsRowMajor);
  return {.data = image.data(), .height = image.rows(), .width = image.cols(), .channels = 1, .row_stride = image.outerStride()};
}

}  // namespace

int main(int argc, char** argv) try {
  npu_train::check(argc == 2, npu_train::ErrorKind::Usage, "frames", "give a checkpoint");
  std::vector<unsigned char> pixels(480 * 2048, 100);  // rows with a gap: 640 pixels are 1,920 bytes
  const cv::Mat frame{pixels.data(), 480, 640, 2048};
  const Matrix gray{pixels.data()};

  const auto predictor = npu_train::Predictor::from_checkpoint(argv[1]);
  const auto logits = predictor.predict({view_of(frame), gray_view(gray)});  // [2, classes], computed as one batch
  for (int64_t i = 0; i < logits.size(0); ++i)
    for (const auto& answer : predictor.top_answers(logits.select(0, i), 1))
      std::printf("image %d: %s (%.1f %%)\n", static_cast<int>(i), answer.name.c_str(), 100 * answer.probability);
} catch (const npu_train::Error& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return e.exit_code();
}
