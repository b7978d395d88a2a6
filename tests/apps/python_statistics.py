"""Images of every mode, and their statistics by Pillow and numpy, for image_data_test.py: python_statistics.py DIR

Writes DIR/train/<class>/ and prints one JSON document: modes by the names of npu_train, sizes as "HEIGHTxWIDTH", and mean and deviation of the
pixels as RGB."""
import collections
import json
import pathlib
import sys

import numpy
from PIL import Image

MODES = {'RGB': 'RGB', 'L': 'gray', 'LA': 'gray and alpha', 'RGBA': 'RGB and alpha', 'P': 'palette', '1': 'gray, 1 bit'}
folder = pathlib.Path(sys.argv[1]) / 'train'
random = numpy.random.RandomState(5)
files = [('cat', 'RGB', 'jpg', 37, 50), ('cat', 'L', 'jpg', 16, 16), ('cat', 'RGB', 'png', 20, 31), ('cat', 'RGB', 'png', 20, 31), ('dog', 'L', 'png', 9, 40),
         ('dog', 'LA', 'png', 12, 12), ('eel', 'RGBA', 'png', 33, 8), ('eel', 'P', 'png', 40, 40), ('eel', '1', 'png', 21, 17),
         ('cat', 'RGB', 'webp', 18, 25), ('cat', 'P', 'bmp', 22, 19), ('dog', 'RGB', 'bmp', 15, 27), ('eel', 'RGBA', 'webp', 14, 23)]
modes, sizes, pixels = collections.Counter(), collections.Counter(), []
for i, (name, mode, extension, height, width) in enumerate(files):
    y, x = numpy.mgrid[0:height, 0:width]
    smooth = (numpy.stack([3 * x + y, 2 * y + 40, x + 3 * y + i], 2) % 256 + random.randint(0, 9, (height, width, 3))).clip(0, 255).astype(numpy.uint8)
    image = Image.fromarray(smooth)
    image = image.quantize(256) if mode == 'P' else image.convert(mode)
    path = folder / name / f'{i}.{extension}'
    path.parent.mkdir(parents=True, exist_ok=True)
    if mode == 'RGBA': image.putalpha(200)
    image.save(path, **{'jpg': {'quality': 90}, 'webp': {'lossless': True}}.get(extension, {}))
    with Image.open(path) as opened:
        modes[f"{opened.format.replace('WEBP', 'WebP')}, {MODES[opened.mode]}"] += 1
        sizes[f'{opened.height}x{opened.width}'] += 1
        pixels.append(numpy.asarray(opened.convert('RGB')).reshape(-1, 3).astype(numpy.float64) / 255)
pixels = numpy.concatenate(pixels)
print(json.dumps({'modes': modes, 'sizes': sizes, 'pixels': len(pixels), 'mean': list(pixels.mean(0)), 'std': list(pixels.std(0))}))
