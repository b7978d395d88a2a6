#include <algorithm>
#include <filesystem>

#include "data/image_file.hpp"
#include "data/open_tokens.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/image_text.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train {
namespace detail {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<ImageText> open_pairs(const ImageTextOptions& o, const std::string& file, const std::optional<QuestionOptions>& questions) {
  return std::make_shared<ImageText>(o.root, std::vector<std::string>{(fs::path(o.root) / file).string()},
                                     DocumentRules{.context = o.context,
                                                   .long_documents = o.long_documents,
                                                   .begin_token = o.begin_token,
                                                   .end_token = o.end_token,
                                                   .pad_token = o.pad_token,
                                                   .vocab_size = o.vocab_size,
                                                   .skip_bad = o.on_bad_sample == "skip"},
                                     questions);
}

// Counts the images in `root` that are not in `named` (sorted). Hidden files and links to folders are ignored.
int64_t without_caption(const fs::path& root, const std::vector<std::string>& named) {
  int64_t count = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string()[0] == '.') {
      std::error_code gone;
      if (it->is_directory(gone)) it.disable_recursion_pending();
    } else if (is_image_name(it->path()) && !std::binary_search(named.begin(), named.end(), it->path().lexically_relative(root).string())) {
      ++count;
    }
  }
  check(!error, ErrorKind::Data, "image_text", root.string(), ": ", error.message());
  return count;
}

DatasetPair open_folder(const ImageTextOptions& options, const std::optional<QuestionOptions>& questions, const char* line,
                        const TransformRegistry& transforms) {
  check(!options.root.empty() && !options.train.empty(), ErrorKind::Usage, "data.root",
        "no folder or no file of pairs is named; hint: data.root=FOLDER, and data.train=FILE in it with ", line, " in each line");
  check_split(options.train, options.val, options.val_fraction);
  check(options.mixup_alpha == 0 && options.cutmix_alpha == 0, ErrorKind::Usage, "data",
        "mixup and cutmix mix classes; the images have texts instead; hint: remove them");
  DatasetPair pair;
  pair.options = options;
  const auto all = open_pairs(options, options.train, questions);
  auto counts = all->counts();
  auto missing = all->missing_images();
  auto named = all->images();
  split_off_validation(pair, all, options.val_fraction);
  if (!options.val.empty()) {
    const auto val = open_pairs(options, options.val, questions);
    counts += val->counts();
    missing += val->missing_images();
    const auto more = val->images();
    named.insert(named.end(), more.begin(), more.end());
    std::sort(named.begin(), named.end());
    pair.val = val;
  }
  std::vector<std::string> left_out;
  const auto bare = without_caption(options.root, named);
  if (bare > 0) left_out.push_back(with_commas(bare) + (bare == 1 ? " image" : " images") + " without a text");
  if (missing > 0) left_out.push_back(with_commas(missing) + (missing == 1 ? " pair" : " pairs") + " omitted (no such image)");
  if (const auto texts = counts.str(options.context); !texts.empty()) left_out.push_back(texts);
  pair.left_out = join(left_out);
  set_pipelines(pair, all->info(), transforms);
  warn_without_validation(pair);
  return pair;
}

// Adds all fields. `line` is the form of a line, for the help texts.
template <class T>
ConfigTable<T> image_text_fields(ConfigTable<T> table, const char* line) {
  using O = ImageTextOptions;
  // Explicit type arguments: a member of a base class would not be deduced as a member of T.
  return data_fields(
      table.template field<std::string>("root", &O::root, "folder with the images and the files of pairs")
          .template field<std::string>("train", &O::train, std::string("file of the training pairs, in root: ") + line + " in each line")
          .template field<std::string>("val", &O::val, "that of the validation; empty: val_fraction")
          .template field<double>("val_fraction", &O::val_fraction,
                                  "share of the training pairs, at the end, that is used for validation instead", between(0, 0.9))
          .template field<int64_t>("context", &O::context, "tokens of the longest text, with begin_token and end_token",
                                   between(2, 1 << 20))
          .template field<std::string>("long_documents", &O::long_documents,
                                       "longer texts; error: the run ends; truncate: the first tokens, then end_token",
                                       one_of({"error", "truncate"}))
          .template field<int64_t>("begin_token", &O::begin_token,
                                   "comes before the tokens of each text, unless a list of tokens begins with it; -1: nothing",
                                   between(-1, 1 << 24))
          .template field<int64_t>("end_token", &O::end_token, "comes after them, unless a list of tokens ends with it",
                                   between(0, 1 << 24))
          .template field<int64_t>("pad_token", &O::pad_token, "fills the shorter texts of a batch", between(0, 1 << 24))
          .template field<int64_t>("vocab_size", &O::vocab_size, "a token of at least this is an error; 0: not checked",
                                   between(0, 1 << 24)));
}

constexpr const char* kCaptionLine = "{\"image\": \"a.jpg\", \"text\": \"...\"}";
constexpr const char* kQuestionLine = "{\"image\": \"a.jpg\", \"question\": \"...\", \"answer\": \"...\"}";

}  // namespace

DatasetPair open_image_text(const ImageTextOptions& options, const TransformRegistry& transforms) {
  return open_folder(options, std::nullopt, kCaptionLine, transforms);
}

DatasetPair open_image_questions(const ImageQuestionsOptions& options, const TransformRegistry& transforms) {
  return open_folder(options, options, kQuestionLine, transforms);
}

}  // namespace detail

ImageTextOptions::ImageTextOptions() {
  image_size = 224;
  train_transforms = {part("random_resized_crop", {{"scale", ConfigNode::list({ConfigNode(0.9), ConfigNode(1.0)})}}), part("normalize")};
  val_transforms = {part("resize"), part("center_crop"), part("normalize")};
}

const ConfigTable<ImageTextOptions>& ImageTextOptions::config_table() {
  static const auto table = detail::image_text_fields(ConfigTable<ImageTextOptions>("data image_text"), detail::kCaptionLine);
  return table;
}

ImageQuestionsOptions::ImageQuestionsOptions() {
  context = 256;
  image_size = 32;
}

const ConfigTable<ImageQuestionsOptions>& ImageQuestionsOptions::config_table() {
  using T = ImageQuestionsOptions;
  static const auto table = question_fields(detail::image_text_fields(ConfigTable<T>("data image_questions"), detail::kQuestionLine));
  return table;
}

}  // namespace npu_train
