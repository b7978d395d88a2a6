"""Small image and data files, written by hand."""
import struct
import zlib

# A training on a folder of small images.
FOLDER = '''
seed: 1
device: cpu
precision: 32-true
model: {{name: vit, patch_size: 8, dim: 32, depth: 1, heads: 2, mlp_dim: 64}}
data:
  name: image_folder
  root: {dir}/{root}
  image_size: 32
  batch_size: 6
  num_workers: 0
  train_transforms: &t [{{name: center_crop, size: 32}}, normalize]
  val_transforms: *t
optimizer: {{name: adamw, lr: 0.003}}
trainer: {{max_epochs: {epochs}, threads: 1, num_sanity_val_steps: 0}}
output: {{dir: {dir}/out, name: run, logger: [csv]}}
'''


def png_of(size, pixels):
    """The bytes of a square image of RGB pixels."""
    def chunk(kind, data): return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    rows = b''.join(b'\0' + pixels[3 * size * i:3 * size * (i + 1)] for i in range(size))
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', size, size, 8, 2, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(rows)) +
            chunk(b'IEND', b''))


def png(path, size, value):
    """An image of one colour."""
    path.write_bytes(png_of(size, bytes(value) * size * size))


def jpeg(size, seed):
    """The bytes of a gray baseline JPEG of 8 x 8 blocks of one shade each: the mean of every block and no more."""
    def segment(marker, data): return b'\xff' + bytes([marker]) + struct.pack('>H', len(data) + 2) + data
    bits, last = '', 0
    for k in range((size // 8) ** 2):
        level = (seed + 37 * k) % 200 - 100
        change, last = level - last, level
        digits = abs(change).bit_length()
        bits += f'{digits:04b}'  # by the table below, the code of a size is the four bits of its number
        if digits: bits += f'{change if change > 0 else change + (1 << digits) - 1:0{digits}b}'
        bits += '0'  # marks the end of the block
    bits += '1' * (-len(bits) % 8)
    data = int(bits, 2).to_bytes(len(bits) // 8, 'big').replace(b'\xff', b'\xff\x00')
    codes = lambda which, lengths, values: segment(0xc4, bytes([which]) + bytes(lengths) + bytes(values))
    return (b'\xff\xd8' + segment(0xdb, b'\0' + bytes([8] * 64)) + segment(0xc0, struct.pack('>BHHB', 8, size, size, 1) + b'\x01\x11\x00') +
            codes(0x00, [0, 0, 0, 12] + [0] * 12, range(12)) + codes(0x10, [1] + [0] * 15, [0]) +
            segment(0xda, b'\x01\x01\x00\x00\x3f\x00') + data + b'\xff\xd9')


def cifar10(folder, records=8):
    """A folder as the binary version of CIFAR-10, with few images."""
    folder.mkdir(parents=True)
    for k, name in enumerate([f'data_batch_{i}.bin' for i in range(1, 6)] + ['test_batch.bin']):
        data = b''.join(bytes([(k + r) % 10]) + bytes((r * 31 + i * 7) % 256 for i in range(3072)) for r in range(records))
        (folder / name).write_bytes(data)
    return folder
