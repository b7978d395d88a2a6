#include "predict_page.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/image.hpp"
#include "npu_train/data/image_codec.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostThumbnails = 2'000;
constexpr int64_t kThumbnailSide = 160;  // pixels of the longer side
constexpr int kThumbnailQuality = 85;
constexpr uint64_t kMaxThumbnailFile = uint64_t{256} << 20;
constexpr const char* kUnreadable = "(cannot be read)";

HtmlGallery::Picture thumbnail_of(const std::string& path) {
  const auto bytes = read_file(path, kMaxThumbnailFile);
  const std::vector<uint8_t> file(bytes.begin(), bytes.end());
  const auto header = read_header(file, path);
  const auto longest = std::max(header.height, header.width);
  const auto side = [&](int64_t pixels) {
    return std::max<int64_t>(1, longest <= kThumbnailSide ? pixels : (pixels * kThumbnailSide + longest / 2) / longest);
  };
  const auto height = side(header.height), width = side(header.width);
  const auto part = decode_box(file, path, {0, 0, header.height, header.width}, height, width);
  const auto jpeg = encode_jpeg(resize(part.image, height, width, {.exact = false}, part.y0, part.x0, part.y1, part.x1), kThumbnailQuality);
  return {.file = {jpeg.begin(), jpeg.end()},
          .height = height,
          .width = width,
          .scale = std::max<int64_t>(1, kThumbnailSide / std::max(height, width))};
}

// Returns the deepest folder that contains all images.
fs::path common_folder(const std::vector<ImageAnswer>& answers) {
  if (answers.empty()) return {};
  auto out = fs::path(answers.front().image).parent_path();
  for (const auto& answer : answers)
    while (!out.empty() && !answer.image.starts_with((out / "").string())) out = out == out.parent_path() ? fs::path() : out.parent_path();
  return out;
}

std::string group_of(const ImageAnswer& answer) {
  if (!answer.error.empty()) return kUnreadable;
  return answer.top.empty() ? "" : answer.top.front().name;
}

HtmlGallery::Item item_of(const ImageAnswer& answer, const std::string& folder) {
  HtmlGallery::Picture picture;
  auto problem = answer.error;
  if (problem.empty()) try {
      picture = thumbnail_of(answer.image);
    } catch (const Error& error) {
      problem = error.what();  // the file has changed since it was predicted
    }
  for (const auto& [name, value] : answer.numbers) picture.lines.emplace_back(name, printed("%.6g", value));
  for (const auto& one : answer.top) picture.lines.emplace_back(one.name, printed("%.1f %%", 100 * one.probability));
  if (!problem.empty()) picture.lines.emplace_back(problem, "");
  return {.title = answer.image.substr(folder.size()),
          .group = group_of(answer),
          .pictures = {std::move(picture)},
          .tone = problem.empty() ? Tone::Plain : Tone::Bad};
}

// The number of images that got each class, and the mean probability of that class among them.
ReportTable table_of_classes(const std::vector<ImageAnswer>& answers) {
  std::map<std::string, std::pair<int64_t, double>> classes;
  for (const auto& answer : answers) {
    if (answer.top.empty()) continue;
    auto& [count, sum] = classes[answer.top.front().name];
    ++count;
    sum += answer.top.front().probability;
  }
  ReportTable out{.title = "Most probable class"};
  for (const auto& [name, of_class] : classes)
    out.add({shown("class", name), shown("images", of_class.first),
             shown("mean probability", share_value(of_class.second / static_cast<double>(of_class.first)))});
  return out;
}

}  // namespace

void add_predictions_page(Report& out, const std::vector<ImageAnswer>& answers, const std::string& origin, const WorkProgress& progress) {
  const auto all = static_cast<int64_t>(answers.size());
  const auto bad = std::count_if(answers.begin(), answers.end(), [](const auto& answer) { return !answer.error.empty(); });
  const auto folder = common_folder(answers);
  out.verdict(with_commas(all) + (all == 1 ? " image" : " images") + (folder.empty() ? "" : " in " + folder.string()) +
                  (bad > 0 ? ", of which " + with_commas(bad) + " cannot be read" : ""),
              bad > 0 ? Tone::Warn : Tone::Plain, ReportIn::Page);
  if (!origin.empty()) out.say(origin, Tone::Plain, ReportIn::Page);
  out.table("", table_of_classes(answers), ReportIn::Page);
  HtmlGallery gallery{.title = "Images", .group_name = "class"};
  const auto shown_images = std::min(answers.size(), kMostThumbnails);
  const auto prefix = folder.empty() ? "" : (folder / "").string();
  for (size_t i = 0; i < shown_images; ++i) {
    progress(static_cast<int64_t>(i), static_cast<int64_t>(shown_images));
    gallery.items.push_back(item_of(answers[i], prefix));
  }
  if (shown_images < answers.size())
    out.verdict(
        "the first " + with_commas(static_cast<int64_t>(shown_images)) + " images are shown; --to FILE.csv lists the answers of all",
        Tone::Warn, ReportIn::Page);
  out.gallery(std::move(gallery));
}

}  // namespace npu_train::cli
