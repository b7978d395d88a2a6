"""Images and the evaluation transforms of torchvision and timm, for eval_transforms_test.py:

  make DIR SIDE                         writes images, a folder of them as data, and a network whose logits are its input; prints the images' paths
  compare DIR SIDE TRANSFORM LOGITS.npy prints the largest difference of these pixels from the transform's, in levels (1 / 255)
  loss DIR SIDE TRANSFORM               prints the cross entropy of the validation images with these pixels as logits"""
import itertools
import json
import pathlib
import shutil
import struct
import sys

import torch

import any_torchvision  # noqa: F401
import numpy as np
from PIL import Image

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Pixels(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.ones(1))

    def forward(self, x): return x.flatten(1) * self.factor


def image(height, width, seed):
    """Texture and noise, which a reduced decoding changes."""
    random = np.random.RandomState(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = 60 * np.sin(x / 2.3)[..., None] * np.sin(y / 2.9)[..., None]
    return (127 + waves + random.randint(-50, 51, (height, width, 3))).clip(0, 255).astype(np.uint8)


def images(folder): return [path for kind in ('jpg', 'png', 'webp', 'bmp') for path in sorted(folder.glob(f'*.{kind}'))]


def bmp(width, height, bits, data, compression=0, colors=b'', core=False):
    """A BMP file of stored pixels; `colors`: its palette, or its bit masks; `core`: with the header of OS/2."""
    header = (struct.pack('<IHHHH', 12, width, height, 1, bits) if core else
              struct.pack('<IiiHHIIiiII', 40, width, height, 1, bits, compression, len(data), 0, 0, len(colors) // 4 if bits <= 8 else 0, 0))
    offset = 14 + len(header) + len(colors)
    return b'BM' + struct.pack('<IHHI', offset + len(data), 0, 0, offset) + header + colors + data


def stored(rows):
    """Rows of bytes, padded to four, the last one first."""
    return b''.join(bytes(row) + bytes(-len(row) % 4) for row in reversed(rows))


def nibbles(row): return bytes(high << 4 | low for high, low in itertools.zip_longest(row[::2], row[1::2], fillvalue=0))


def runs(rows, pack):
    """RLE8 (pack: bytes) or RLE4 (pack: nibbles): every third row as it is, in parts, the others as runs of one color."""
    out = b''
    for y, row in enumerate(reversed(rows)):
        parts = []
        if y % 3 == 0:
            for begin in range(0, len(row) - 2, 99):
                part = row[begin:begin + 99] if begin + 99 < len(row) - 2 else row[begin:]
                data = pack(part)
                parts.append(bytes([0, len(part)]) + data + bytes(len(data) % 2))
        else:
            for color, same in itertools.groupby(row):
                count = len(list(same))
                both = color if pack is bytes else color << 4 | color
                parts += [bytes([min(255, count - done), both]) for done in range(0, count, 255)]
        out += b''.join(parts) + b'\0\0'
    return out[:-2] + b'\0\1'


def write_bmps(folder):
    """Every kind of BMP that Pillow reads: those that it writes, and others by hand."""
    rgb = image(83, 97, 20)
    for mode in ('1', 'L', 'P', 'RGB', 'RGBA'): Image.fromarray(rgb).convert(mode).save(folder / f'pillow_{mode}.bmp')
    height, width = rgb.shape[:2]
    palette = np.random.RandomState(3).randint(0, 256, (256, 4)).astype(np.uint8)
    palette[:, 3] = 0
    smooth = [[(x // 9 + y // 7 * 3) % 16 for x in range(width)] for y in range(height)]  # with runs
    deep = rgb.astype(np.uint32)
    r, g, b = (deep[..., c] for c in range(3))
    files = {
        'four': bmp(width, height, 4, stored([nibbles(row) for row in smooth]), colors=palette[:16].tobytes()),
        'rle4': bmp(width, height, 4, runs(smooth, nibbles), 2, palette[:16].tobytes()),
        'rle8': bmp(width, height, 8, runs(rgb[..., 0].tolist(), bytes), 1, palette.tobytes()),
        'core': bmp(width, height, 8, stored(rgb[..., 1].tolist()), colors=palette[:, :3].tobytes(), core=True),
        'core24': bmp(width, height, 24, stored([row.tobytes() for row in rgb]), core=True),
        'deep': bmp(width, height, 16, stored([row.tobytes() for row in (r >> 3 << 10 | g >> 3 << 5 | b >> 3).astype('<u2')])),
        'masks16': bmp(width, -height, 16, stored([row.tobytes() for row in (r >> 3 << 11 | g >> 2 << 5 | b >> 3).astype('<u2')[::-1]]), 3,
                       struct.pack('<III', 0xf800, 0x7e0, 0x1f)),
        'masks32': bmp(width, -height, 32, (r << 24 | g << 16 | b << 8 | 77).astype('<u4').tobytes(), 3, struct.pack('<III', 0xff000000, 0xff0000, 0xff00)),
    }
    for name, content in files.items(): (folder / f'{name}.bmp').write_bytes(content)


def write_webps(folder):
    rgb = image(131, 120, 30)
    alpha = np.dstack([rgb, np.arange(131 * 120).reshape(131, 120) % 256]).astype(np.uint8)
    Image.fromarray(rgb).save(folder / 'lossy.webp', quality=80)
    Image.fromarray(rgb).save(folder / 'lossless.webp', lossless=True)
    Image.fromarray(alpha).save(folder / 'alpha.webp', quality=80)
    Image.fromarray(alpha).save(folder / 'exact.webp', lossless=True, exact=True)
    frames = [Image.fromarray(f) for f in (alpha, alpha[::-1].copy())]
    frames[0].save(folder / 'animated.webp', save_all=True, append_images=frames[1:], duration=100)


def make(folder, side):
    for i, (height, width, sampling) in enumerate([(300, 401, 0), (523, 260, 2), (131, 150, 1), (61, 200, 2)]):
        Image.fromarray(image(height, width, i)).save(folder / f'{i}.jpg', quality=92, subsampling=sampling)
    Image.fromarray(image(190, 101, 9)).save(folder / 'p.png')
    write_bmps(folder)
    write_webps(folder)
    for split in ('train', 'val'):
        for k, path in enumerate(images(folder)):
            (folder / 'data' / split / 'ab'[k % 2]).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / 'data' / split / 'ab'[k % 2])
    torch.jit.script(Pixels()).save(str(folder / 'pixels.pt'))
    from safetensors.torch import save_file
    save_file(Pixels().state_dict(), folder / 'pixels.safetensors')
    write_folders(folder, side)
    return [str(path) for path in images(folder)]


def processors(side):
    """Image processors of transformers, whose preprocessor_config.json predict reads, by name."""
    import transformers as t
    square = {'height': side, 'width': side}
    return {'vit': t.ViTImageProcessor(size=square, resample=2, image_mean=[0.5] * 3, image_std=[0.5] * 3),
            'clip': t.CLIPImageProcessor(size={'shortest_edge': side}, crop_size=square),
            'convnext': t.ConvNextImageProcessor(size={'shortest_edge': side}, crop_pct=0.875),
            'deit': t.DeiTImageProcessor(size={'height': side + 8, 'width': side + 8}, crop_size=square)}


def write_folders(folder, side):
    """The network's weights next to the files of each processor, and next to timm's config.json."""
    for name, processor in processors(side).items():
        processor.save_pretrained(folder / name)
        shutil.copy(folder / 'pixels.safetensors', folder / name)
    (folder / 'pretrained_cfg').mkdir()
    shutil.copy(folder / 'pixels.safetensors', folder / 'pretrained_cfg')
    cfg = {'input_size': [3, side, side], 'interpolation': 'bicubic', 'crop_pct': 0.9, 'crop_mode': 'center', 'mean': MEAN, 'std': STD}
    (folder / 'pretrained_cfg/config.json').write_text(json.dumps({'architecture': 'resnet18', 'pretrained_cfg': cfg}))


def transform_of(name, side):
    if name in ('timm', 'pretrained_cfg'):
        from timm.data import create_transform
        return create_transform((3, side, side), is_training=False, interpolation='bicubic', crop_pct=0.9, mean=MEAN, std=STD)
    from torchvision import transforms as t
    if name != 'torchvision':
        processor = processors(side)[name]
        # If the margin is odd, transformers crops the larger half on the right and at the bottom; torchvision (and npu_train) crop the half
        # that rounds to even.
        if not getattr(processor, 'do_center_crop', False): return lambda image: processor(image, return_tensors='pt')['pixel_values'][0]
        return lambda image: t.CenterCrop(side)(processor(image, do_center_crop=False, return_tensors='pt')['pixel_values'][0])
    return t.Compose([t.Resize(side * 256 // 224), t.CenterCrop(side), t.ToTensor(), t.Normalize(MEAN, STD)])


def pixels(paths, name, side):
    transform = transform_of(name, side)
    return torch.stack([transform(Image.open(path).convert('RGB')) for path in paths])


def compare(folder, side, name, logits):
    ours = torch.from_numpy(np.load(logits)).reshape(-1, 3, side, side)
    theirs = pixels(images(folder), name, side)
    std = getattr(processors(side).get(name), 'image_std', STD)
    return ((ours - theirs).abs() * torch.tensor(std).view(3, 1, 1) * 255).max().item()


def loss(folder, side, name):
    paths = sorted((folder / 'data/val').glob('*/*'))
    labels = torch.tensor(['ab'.index(path.parent.name) for path in paths])
    return torch.nn.functional.cross_entropy(pixels(paths, name, side).flatten(1), labels).item()


def main(what, folder, side, *rest):
    print(json.dumps({'make': make, 'compare': compare, 'loss': loss}[what](pathlib.Path(folder), int(side), *rest)))


if __name__ == '__main__': main(*sys.argv[1:])
