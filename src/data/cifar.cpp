#include "npu_train/data/image_dataset.hpp"

#include <filesystem>

#include "npu_train/core/error.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train {
namespace {

constexpr int64_t kPixels = 3 * 32 * 32;
constexpr int64_t kMaxFile = int64_t{4} << 30;

const std::vector<std::string> kNames10 = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
const std::vector<std::string> kNames100 = {
    "apple",       "aquarium_fish", "baby",         "bear",       "beaver",       "bed",        "bee",         "beetle",   "bicycle",
    "bottle",      "bowl",          "boy",          "bridge",     "bus",          "butterfly",  "camel",       "can",      "castle",
    "caterpillar", "cattle",        "chair",        "chimpanzee", "clock",        "cloud",      "cockroach",   "couch",    "crab",
    "crocodile",   "cup",           "dinosaur",     "dolphin",    "elephant",     "flatfish",   "forest",      "fox",      "girl",
    "hamster",     "house",         "kangaroo",     "keyboard",   "lamp",         "lawn_mower", "leopard",     "lion",     "lizard",
    "lobster",     "man",           "maple_tree",   "motorcycle", "mountain",     "mouse",      "mushroom",    "oak_tree", "orange",
    "orchid",      "otter",         "palm_tree",    "pear",       "pickup_truck", "pine_tree",  "plain",       "plate",    "poppy",
    "porcupine",   "possum",        "rabbit",       "raccoon",    "ray",          "road",       "rocket",      "rose",     "sea",
    "seal",        "shark",         "shrew",        "skunk",      "skyscraper",   "snail",      "snake",       "spider",   "squirrel",
    "streetcar",   "sunflower",     "sweet_pepper", "table",      "tank",         "telephone",  "television",  "tiger",    "tractor",
    "train",       "trout",         "tulip",        "turtle",     "wardrobe",     "whale",      "willow_tree", "wolf",     "woman",
    "worm"};

int64_t label_bytes(CifarKind kind) { return kind == CifarKind::Cifar10 ? 1 : 2; }

std::string how_to_get(CifarKind kind) {
  return std::string("download it with data.download=true or scripts/get_data ") + (kind == CifarKind::Cifar10 ? "cifar10" : "cifar100") +
         ", set data.root to the folder with the .bin files, or use 'data={name: generated}', which needs no download";
}

std::vector<uint8_t> read_records(CifarKind kind, const std::string& path) {
  if (std::error_code ignored; !std::filesystem::exists(path, ignored))
    throw Error(ErrorKind::Data, "CifarDataset", path + ": no such file", how_to_get(kind));
  const ReadableFile file(path);
  const auto size = static_cast<int64_t>(file.size());
  const int64_t record = label_bytes(kind) + kPixels;
  if (size == 0 || size % record != 0) {
    throw Error(ErrorKind::Data, "CifarDataset",
                str_cat(path, ": ", size, " bytes; records are ", record, " bytes and the file must contain only complete ones"),
                "it is truncated or a different file: " + how_to_get(kind));
  }
  check(size <= kMaxFile, ErrorKind::Data, "CifarDataset", path, ": ", size, " bytes; allowed: at most ", kMaxFile);
  std::vector<uint8_t> bytes(size);
  file.read(0, bytes.data(), bytes.size());
  return bytes;
}

}  // namespace

DatasetInfo cifar_info(CifarKind kind) {
  DatasetInfo info;
  info.name = kind == CifarKind::Cifar10 ? "cifar10" : "cifar100";
  info.num_classes = kind == CifarKind::Cifar10 ? 10 : 100;
  info.class_names = kind == CifarKind::Cifar10 ? kNames10 : kNames100;
  info.shape = {3, 32, 32};
  info.mean = kind == CifarKind::Cifar10 ? std::vector<double>{0.4914, 0.4822, 0.4465} : std::vector<double>{0.5071, 0.4865, 0.4409};
  info.std = kind == CifarKind::Cifar10 ? std::vector<double>{0.2470, 0.2435, 0.2616} : std::vector<double>{0.2673, 0.2564, 0.2762};
  return info;
}

std::vector<std::string> cifar_files(CifarKind kind, Split split) {
  if (kind == CifarKind::Cifar100) return {split == Split::Train ? "train.bin" : "test.bin"};
  if (split != Split::Train) return {"test_batch.bin"};
  return {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
}

CifarDataset::CifarDataset(CifarKind kind, const std::string& root, Split split) {
  DatasetInfo info = cifar_info(kind);
  const int64_t label_size = label_bytes(kind), record = label_size + kPixels;
  std::vector<uint8_t> pixels;
  std::vector<int64_t> labels;
  for (const auto& name : cifar_files(kind, split)) {
    const std::string path = (std::filesystem::path(root) / name).string();
    files_.push_back({path, static_cast<int64_t>(labels.size())});
    const std::vector<uint8_t> bytes = read_records(kind, path);
    for (int64_t at = 0; at < static_cast<int64_t>(bytes.size()); at += record) {
      const uint8_t* data = bytes.data() + at;
      const int64_t label = data[label_size - 1];  // CIFAR-100: the fine label
      if (label >= info.num_classes) {
        throw Error(ErrorKind::Data, "CifarDataset",
                    str_cat(path, ": record ", at / record, " has the label ", label, "; labels are 0 to ", info.num_classes - 1,
                            ", records are ", record, " bytes"),
                    "the file is damaged or has a different layout: " + how_to_get(kind));
      }
      labels.push_back(label);
      pixels.insert(pixels.end(), data + label_size, data + record);
    }
  }
  pixels.shrink_to_fit();
  assign(std::move(pixels), std::move(labels), std::move(info));
}

std::string CifarDataset::where(int64_t index) const {
  const File* file = &files_.front();
  for (const auto& candidate : files_) {
    if (candidate.first <= index) file = &candidate;
  }
  return file->path + ", record " + std::to_string(index - file->first);
}

void write_cifar10(const MemoryImages& images, const std::string& path) {
  check(images.image_bytes() == kPixels && images.info().num_classes <= 256, ErrorKind::Usage, "write_cifar10",
        "CIFAR's layout supports only images of 3 x 32 x 32 with at most 256 classes");
  AtomicFile out(path);
  for (int64_t i = 0; i < images.size(); ++i) {
    const auto label = static_cast<char>(images.labels()[i]);
    out.write(&label, 1);
    out.write(images.pixels(i), kPixels);
  }
  out.commit();
}

CifarOptions::CifarOptions() {
  image_size = 32;
  train_transforms = {part("random_crop", {{"size", 32}, {"padding", 4}}), part("horizontal_flip"), part("resize"), part("normalize")};
  val_transforms = {part("resize"), part("normalize")};
}

namespace {
template <class T>
ConfigTable<T> cifar_table(const std::string& title) {
  return data_fields(
      ConfigTable<T>(title)
          .field("root", static_cast<std::string T::*>(&CifarOptions::root), "folder with the .bin files")
          .field("download", static_cast<bool T::*>(&CifarOptions::download), "downloads the archive if root does not exist"));
}
}  // namespace

const ConfigTable<Cifar10Options>& Cifar10Options::config_table() {
  static const auto table = cifar_table<Cifar10Options>("data cifar10");
  return table;
}

const ConfigTable<Cifar100Options>& Cifar100Options::config_table() {
  static const auto table = cifar_table<Cifar100Options>("data cifar100");
  return table;
}

}  // namespace npu_train
