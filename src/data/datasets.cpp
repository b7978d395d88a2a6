#include "npu_train/data/datasets.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <tuple>

#include "data/image_file.hpp"
#include "data/open_tokens.hpp"
#include "data/webdataset.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/device_augment.hpp"
#include "npu_train/data/download.hpp"
#include "npu_train/data/generated.hpp"
#include "npu_train/data/image_dataset.hpp"
#include "npu_train/data/mixup.hpp"
#include "npu_train/data/sample_choice.hpp"

namespace npu_train {
namespace {

DatasetPair open_cifar(CifarKind kind, const CifarOptions& options, const TransformRegistry& transforms) {
  if (options.download) download_cifar(kind, options.root);
  DatasetPair pair;
  pair.train = std::make_shared<CifarDataset>(kind, options.root, Split::Train);
  pair.val = std::make_shared<CifarDataset>(kind, options.root, Split::Val);
  pair.open_test = [val = pair.val] { return val; };  // the published test images are also those of validation
  pair.options = options;
  set_pipelines(pair, pair.train->info(), transforms);
  return pair;
}

/// Returns "8 of the images in subfolders, 11 files skipped (8 .txt, 3 .gif)", summed over both folders.
std::string left_out_of(const ImageFolder& train, const ImageFolder* val) {
  auto skipped = train.skipped();
  if (val != nullptr)
    for (const auto& [what, count] : val->skipped()) skipped[what] += count;
  int64_t all = 0;
  std::vector<std::string> counts, out;
  for (const auto& [what, count] : skipped) {
    all += count;
    counts.push_back(with_commas(count) + " " + what);
  }
  const auto inside = train.in_subfolders() + (val != nullptr ? val->in_subfolders() : 0);
  if (inside > 0) out.push_back(with_commas(inside) + " of the images are in subfolders");
  if (all > 0) out.push_back(with_commas(all) + (all == 1 ? " file" : " files") + " skipped (" + join(counts) + ")");
  return join(out);
}

DatasetPair open_folder(const ImageFolderOptions& options, const TransformRegistry& transforms) {
  const auto root = std::filesystem::path(options.root);
  DatasetPair pair;
  const auto train = std::make_shared<ImageFolder>(detail::training_folder(root).string());
  const auto classes = train->info().class_names;
  const auto folder = detail::validation_folder(root);
  const auto val = folder.empty() ? nullptr : std::make_shared<ImageFolder>(folder, classes);
  check(val == nullptr || !options.any(), ErrorKind::Usage, "data", folder, " has the validation images; omit ",
        options.fold.empty() ? "data.val_split" : "data.fold", ", or move the folder");
  pair.left_out = left_out_of(*train, val.get());
  pair.train = train;
  pair.val = val;
  if (options.any()) std::tie(pair.train, pair.val) = split_images(train, options);
  if (pair.val == nullptr)
    log_warning("data.root ", options.root, " has no folder val (nor valid, validation); the run does not validate; hint: ",
                "data.val_split=0.1 holds out a part of the images");
  if (const auto test = root / "test"; std::filesystem::is_directory(test))
    pair.open_test = [test, classes] { return std::make_shared<ImageFolder>(test.string(), classes); };
  pair.options = options;
  set_pipelines(pair, pair.train->info(), transforms);
  return pair;
}

DatasetPair open_list(const ImageListOptions& options, const TransformRegistry& transforms) {
  const auto file = [root = options.root](const std::string& name) { return (std::filesystem::path(root) / name).string(); };
  check(!options.train.empty(), ErrorKind::Usage, "data.train", "no list is named; hint: data.root=FOLDER, and data.train=FILE.csv in it");
  check(options.val.empty() || !options.any(), ErrorKind::Usage, "data", "data.val lists the validation images; omit ",
        options.fold.empty() ? "data.val_split" : "data.fold", ", or data.val");
  ImageListColumns columns = options;
  if (columns.label.empty() && columns.labels.empty() && columns.values.empty()) columns.label = "label";
  const auto train = std::make_shared<ImageList>(options.root, file(options.train), columns);
  check(train->targets() == 0 || (options.mixup_alpha == 0 && options.cutmix_alpha == 0), ErrorKind::Usage, "data",
        "mixup and cutmix mix one class of each image; the images have ", options.labels.empty() ? "numbers" : "several classes",
        "; hint: remove them");
  const auto open = [root = options.root, columns, file, classes = train->info().class_names](const std::string& name) {
    return std::make_shared<ImageList>(root, file(name), columns, classes);
  };
  DatasetPair pair;
  pair.train = train;
  if (!options.val.empty()) pair.val = open(options.val);
  if (options.any()) std::tie(pair.train, pair.val) = split_images(train, options);
  if (!options.test.empty()) pair.open_test = [open, test = options.test] { return open(test); };
  pair.options = options;
  set_pipelines(pair, pair.train->info(), transforms);
  return pair;
}

DatasetPair open_generated(const GeneratedOptions& options, const TransformRegistry& transforms) {
  const auto seed = static_cast<uint64_t>(options.data_seed);
  DatasetPair pair;
  pair.train = std::make_shared<MemoryImages>(generate_shapes(options.train_size, seed, options.style));
  // Validation uses a different stream of the same seed, so no validation image is a training image.
  pair.val = std::make_shared<MemoryImages>(generate_shapes(options.val_size, derive_seed(seed, "validation"), options.style));
  pair.options = options;
  set_pipelines(pair, pair.train->info(), transforms);
  return pair;
}

LoaderOptions common(const DatasetPair& pair, LoaderOptions runtime) {
  const auto& data = pair.options;
  if (pair.collate) runtime.collate = pair.collate;
  runtime.num_workers = parse_num_workers(data.num_workers);
  runtime.prefetch_factor = data.prefetch_factor;
  runtime.augment_on_device = data.augment_on == "device";
  runtime.skip_bad_samples = data.on_bad_sample == "skip";
  return runtime;
}

}  // namespace

PartConfig part(const std::string& name, ConfigNode options) { return {name, std::move(options), {}}; }

DatasetInfo DatasetPair::info() const {
  return train != nullptr ? train->info() : (train_stream != nullptr ? train_stream->info() : DatasetInfo{});
}

std::string DatasetPair::summary() const {
  const bool images = dynamic_cast<const ImageDataset*>((train != nullptr ? train : val).get()) != nullptr;
  std::string out = train != nullptr ? with_commas(train->size()) : "a stream";
  if (val != nullptr) out += " + " + with_commas(val->size());
  if (train != nullptr || val != nullptr) out += images ? " images" : " samples";
  if (const auto classes = info().num_classes; classes > 0) out += ", " + with_commas(classes) + " classes";
  return out + (left_out.empty() ? "" : ", " + left_out);
}

void set_pipelines(DatasetPair& pair, const DatasetInfo& info, const TransformRegistry& transforms) {
  TransformContext context{pair.options.image_size, info.mean, info.std, /*exact=*/pair.options.jpeg == "exact"};
  pair.train_pipeline = Pipeline::from_config(pair.options.train_transforms, "data.train_transforms", context, transforms);
  context.exact = pair.options.jpeg != "fast";
  pair.val_pipeline = Pipeline::from_config(pair.options.val_transforms, "data.val_transforms", context, transforms);
  if (pair.options.augment_on != "device" || info.shape.size() != 3) return;
  for (const auto* pipeline : {&pair.train_pipeline, &pair.val_pipeline})  // report errors before opening anything else
    split_for_device(*pipeline, info.shape[0], {info.shape[1], info.shape[2]});
}

void set_collate(DatasetPair& pair, const CollateRegistry& collates) {
  if (!pair.options.collate.name.empty()) pair.collate = collates.make(pair.options.collate, "data.collate");
}

Loader train_loader(const DatasetPair& pair, LoaderOptions runtime) {
  const auto& data = pair.options;
  runtime = common(pair, std::move(runtime));
  runtime.batch_size = data.batch_size;
  if (data.drop_last) runtime.last_batch = LastBatch::Drop;
  if (data.mixup_alpha > 0 || data.cutmix_alpha > 0) {
    runtime.finish =
        chain_hooks(mix_batches({data.mixup_alpha, data.cutmix_alpha, pair.info().num_classes, runtime.seed}), std::move(runtime.finish));
  }
  auto choice = detail::sample_choice(pair);
  if (pair.train_stream != nullptr) return Loader(pair.train_stream, pair.train_pipeline, std::move(runtime));
  runtime.shuffle = data.shuffle;
  runtime.sample_weights = std::move(choice.weights);
  runtime.subset = std::move(choice.subset);
  return Loader(pair.train, pair.train_pipeline, std::move(runtime));
}

Loader val_loader(const DatasetPair& pair, LoaderOptions runtime) {
  check(pair.val != nullptr, ErrorKind::Usage, "data", "there are no validation data");
  const auto& data = pair.options;
  runtime = common(pair, std::move(runtime));
  runtime.batch_size = std::min(data.val_batch_size > 0 ? data.val_batch_size : data.batch_size, std::max<int64_t>(1, pair.val->size()));
  runtime.shuffle = false;
  if (runtime.last_batch == LastBatch::Drop) runtime.last_batch = LastBatch::Keep;
  return Loader(pair.val, pair.val_pipeline, std::move(runtime));
}

void add_builtin_datasets(DatasetRegistry& registry) {
  registry.add<Cifar10Options>("cifar10", "CIFAR-10: 50,000 + 10,000 images of 32 x 32, 10 classes",
                               [](const Cifar10Options& o, const TransformRegistry& t) { return open_cifar(CifarKind::Cifar10, o, t); });
  registry.add<Cifar100Options>("cifar100", "CIFAR-100: 50,000 + 10,000 images of 32 x 32, 100 classes",
                                [](const Cifar100Options& o, const TransformRegistry& t) { return open_cifar(CifarKind::Cifar100, o, t); });
  registry.add<ImageFolderOptions>("image_folder", "images in ROOT/train/<class>/ and ROOT/val/<class>/ (or valid/, validation/)",
                                   open_folder);
  registry.add<ImageListOptions>("image_list", "images that a .csv or .jsonl lists, with a class, several classes, or numbers", open_list);
  registry.add<detail::WebdatasetOptions>("webdataset", "images and their classes in .tar archives, as WebDataset writes them; a stream",
                                          detail::open_webdataset);
  registry.add<GeneratedOptions>("generated", "ten classes of coloured shapes, 32 x 32, drawn from a seed; needs no files", open_generated);
  registry.add<TokensOptions>("tokens", "text as token ids, in the files of llm.c and nanoGPT", detail::open_tokens);
  registry.add<DocumentsOptions>("documents", "texts of different lengths, with or without labels: files of tokens, or .jsonl",
                                 detail::open_documents);
  registry.add<ImageTextOptions>("image_text", "images with captions: files in ROOT, and pairs of image and text in a .jsonl",
                                 detail::open_image_text);
  registry.add<ImageQuestionsOptions>("image_questions", "images with questions and answers: files in ROOT, and a .jsonl that names them",
                                      detail::open_image_questions);
  registry.add<GeneratedQuestionsOptions>("generated_questions",
                                          "coloured shapes of 32 x 32 with questions and answers, drawn from a seed; needs no files",
                                          open_generated_questions);
  registry.add<GeneratedCaptionsOptions>(
      "generated_captions", "coloured shapes of 32 x 32 with captions, drawn from a seed; needs no files", open_generated_captions);
  registry.add<GeneratedTextOptions>("generated_text", "English sentences with bytes as tokens, drawn from a seed; needs no files",
                                     detail::open_generated_text);
}

DatasetRegistry builtin_datasets() {
  DatasetRegistry registry("data set");
  add_builtin_datasets(registry);
  return registry;
}

}  // namespace npu_train
